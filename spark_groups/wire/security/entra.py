"""The token provider `entra`: tokens of Microsoft Entra ID, fetched with Azure's own library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from spark_groups.errors import AccessError, BrokerUnreachableError
from spark_groups.wire.security.bearer_token import BearerToken
from spark_groups.wire.security.token_provider import refuse_unknown

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential

SCOPE: Final = "scope"
TENANT: Final = "entra.tenant.id"
CLIENT: Final = "entra.client.id"
SECRET: Final = "entra.client.secret"
AUTHORITY: Final = "entra.authority"
_OPTION: Final = "kafka.sasl.oauthbearer."


def token(settings: Mapping[str, str]) -> BearerToken:
    """Return a new token.

    With a secret the client is an application; without one it is what Azure's
    DefaultAzureCredential finds: the environment, a workload identity, a managed identity, or the
    login of a command-line tool.

    Args:
        settings: `scope`, which is required; `entra.client.id`, of the application or of a managed
            identity; `entra.client.secret` and `entra.tenant.id`; `entra.authority`, the address
            of another authority than login.microsoftonline.com.

    Raises:
        AccessError: The library is missing, a setting is missing, or Entra ID refused.
        BrokerUnreachableError: Entra ID did not answer.
    """
    refuse_unknown(settings, (SCOPE, TENANT, CLIENT, SECRET, AUTHORITY))
    if not settings.get(SCOPE):
        raise AccessError(
            f"set {_OPTION}{SCOPE}, for Event Hubs"
            " https://NAMESPACE.servicebus.windows.net/.default"
        )
    try:
        # Importing it takes half a second; processes without this provider do not need it.
        from azure.core import exceptions  # noqa: PLC0415

        credential = _credential(settings)
    except ImportError as error:
        raise AccessError(
            f"{error}: pip install 'spark-groups[entra]' on the driver and on every executor"
        ) from None
    try:
        found = credential.get_token(settings[SCOPE])
    except exceptions.ClientAuthenticationError as error:
        # A refusal comes without a cause; the library wraps all other failures, too.
        cause = error.__cause__
        if cause is not None and not isinstance(cause, ValueError):
            raise BrokerUnreachableError(str(error)) from None
        raise AccessError(str(error)) from None
    return BearerToken(found.token, found.expires_on * 1000, settings.get(CLIENT, ""))


def _credential(settings: Mapping[str, str]) -> TokenCredential:
    from azure.identity import ClientSecretCredential, DefaultAzureCredential  # noqa: PLC0415

    further: dict[str, Any] = {}
    if settings.get(AUTHORITY):
        # Otherwise the library asks login.microsoft.com whether the authority exists.
        further = {"authority": settings[AUTHORITY], "disable_instance_discovery": True}
    if SECRET not in settings:
        if settings.get(CLIENT):
            further["managed_identity_client_id"] = settings[CLIENT]
        return DefaultAzureCredential(**further)
    missing = [name for name in (TENANT, CLIENT) if not settings.get(name)]
    if missing:
        raise AccessError(f"{SECRET} requires {', '.join(f'{_OPTION}{each}' for each in missing)}")
    return ClientSecretCredential(settings[TENANT], settings[CLIENT], settings[SECRET], **further)
