"""The wire messages by which a connection says who it is."""

from __future__ import annotations

from typing import Final

from spark_groups.wire.schemas.messages import (
    BYTES,
    INT16,
    INT64,
    RESPONSE_HEADER_V0,
    STRING,
    TEXT,
    Field,
    Message,
    Struct,
)

SASL_HANDSHAKE: Final = Message(
    "SaslHandshake",
    17,
    1,
    Struct("SaslHandshakeRequest", (Field("mechanism", STRING),), flexible=False),
    Struct(
        "SaslHandshakeResponse",
        (Field("error_code", INT16), Field("mechanisms", TEXT, array=True)),
        flexible=False,
    ),
    response_header=RESPONSE_HEADER_V0,
)

SASL_AUTHENTICATE: Final = Message(
    "SaslAuthenticate",
    36,
    2,
    Struct("SaslAuthenticateRequest", (Field("auth_bytes", BYTES),)),
    Struct(
        "SaslAuthenticateResponse",
        (
            Field("error_code", INT16),
            Field("error_message", TEXT, nullable=True),
            Field("auth_bytes", BYTES),
            Field("session_lifetime_ms", INT64),
        ),
    ),
)
