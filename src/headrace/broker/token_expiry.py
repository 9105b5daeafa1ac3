"""Deletes expired delegation tokens; runs on the controller."""

import logging

from headrace.apis.context import Services
from headrace.security.state import DelegationToken, SecurityState
from headrace.security.tokens import Tokens

logger = logging.getLogger(__name__)


async def expire_tokens(services: Services) -> None:
    """Delete the expired tokens."""
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
        logger.info("deleted the expired delegation token %s of %s", token.id, token.owner)
