"""The token provider `msk`: IAM tokens of Amazon MSK, signed with AWS's own library."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from spark_groups.errors import AccessError
from spark_groups.wire.security.bearer_token import BearerToken
from spark_groups.wire.security.token_provider import refuse_unknown

REGION: Final = "msk.region"
PROFILE: Final = "msk.profile"
ROLE: Final = "msk.role.arn"
SESSION: Final = "msk.role.session.name"
_NO_CREDENTIALS: Final = (
    "found no AWS credentials here: attach a role to this host, pod or task, or set"
    f" kafka.sasl.oauthbearer.{PROFILE}"
)
_RETRIED_STATUS: Final = 429


def token(settings: Mapping[str, str]) -> BearerToken:
    """Return a token that is valid for 15 minutes, a signed URL.

    The credentials are those that AWS's libraries find in this process, those of `msk.profile`, or
    those of `msk.role.arn`, which AWS STS issues.

    Args:
        settings: `msk.region`, by default that of the environment; `msk.profile`; `msk.role.arn`
            and `msk.role.session.name`.

    Raises:
        AccessError: The library or the credentials are missing, or AWS refused.
    """
    refuse_unknown(settings, (REGION, PROFILE, ROLE, SESSION))
    if PROFILE in settings and ROLE in settings:
        raise AccessError(f"{PROFILE} and {ROLE} are both set: remove one of them")
    region = settings.get(REGION) or os.environ.get("AWS_REGION")
    region = region or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise AccessError(f"the region is unknown: set kafka.sasl.oauthbearer.{REGION}")
    try:
        # Importing it takes a second; processes without this provider do not need it.
        from botocore import exceptions  # noqa: PLC0415
    except ImportError as error:
        raise AccessError(
            f"{error}: pip install 'spark-groups[msk]' on the driver and on every executor"
        ) from None
    try:
        text, expires_at_ms = _signed(region, settings)
    except AttributeError:
        # The signer takes credentials for granted.
        raise AccessError(_NO_CREDENTIALS) from None
    except (
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.ProfileNotFound,
    ) as error:
        raise AccessError(f"{error}; {_NO_CREDENTIALS}") from None
    except exceptions.ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if 400 <= status < 500 and status != _RETRIED_STATUS:
            raise AccessError(str(error)) from None
        raise
    return BearerToken(text, expires_at_ms)


def _signed(region: str, settings: Mapping[str, str]) -> tuple[str, int]:
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Signer  # noqa: PLC0415

    found: tuple[str, int]
    if PROFILE in settings:
        found = Signer.generate_auth_token_from_profile(region, settings[PROFILE])
    elif ROLE in settings:
        session = (settings[SESSION],) if SESSION in settings else ()
        found = Signer.generate_auth_token_from_role_arn(region, settings[ROLE], *session)
    else:
        found = Signer.generate_auth_token(region)
    return found
