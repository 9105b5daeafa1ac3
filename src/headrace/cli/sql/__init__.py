"""`headrace sql`: the prompt, scripts, and the server."""
