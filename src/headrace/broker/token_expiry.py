"""Deletes delegation tokens that have expired; the broker that is the controller does it."""

import logging

from headrace.apis.context import Services
from headrace.security.state import DelegationToken, SecurityState
from headrace.security.tokens import Tokens

logger = logging.getLogger(__name__)


async def expire_tokens(services: Services) -> None:
    """Delete them now."""
    image = services.metadata.image
    tokens = Tokens.of(services.settings, services.clock)
    if image.controller_id != services.node_id or not tokens.expired(image.security):
        return

    def decide(state: SecurityState) -> tuple[list[DelegationToken], SecurityState]:
        expired = tokens.expired(state)
        for token in expired:
            state = state.without_token(token.id)
        return expired, state

    for token in services.metadata.alter_security(decide):
        logger.info("deleted the delegation token %s of %s: it has expired", token.id, token.owner)
