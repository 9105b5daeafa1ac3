"""What each statement does."""
