"""Which errors of an Iceberg catalog pass, and which stop a query."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from spark_groups.errors import TableChangedError, TableError, needs
from spark_groups.masking import Secrets

with needs("iceberg"):
    from pyiceberg.exceptions import (
        AuthorizationExpiredError,
        CommitFailedException,
        CommitStateUnknownException,
        ForbiddenError,
        OAuthError,
        RESTError,
        ServerError,
        ServiceUnavailableError,
        TableAlreadyExistsError,
        TooManyRequestsError,
        UnauthorizedError,
    )
    from requests import RequestException

_CHANGED: Final = (CommitFailedException, TableAlreadyExistsError)
_LOGIN: Final = (UnauthorizedError, ForbiddenError, AuthorizationExpiredError, OAuthError)
_PASSING: tuple[type[Exception], ...] = (
    *(ServiceUnavailableError, TooManyRequestsError, ServerError, RequestException),
    CommitStateUnknownException,
)
_LASTING: tuple[type[Exception], ...] = (RESTError,)
try:
    from sqlalchemy import exc
except ImportError:
    # Only a catalog in a database needs it.
    pass
else:
    _PASSING += (exc.OperationalError, exc.InterfaceError)
    _LASTING += (exc.SQLAlchemyError,)


@contextmanager
def catalog_errors(table: str, secrets: Secrets, *, is_commit: bool = False) -> Iterator[None]:
    """Turn errors of a catalog into those of a table.

    Args:
        table: The name of the table in errors.
        secrets: Those among the catalog's properties.
        is_commit: Whether the catalog may have committed.

    Raises:
        TableChangedError: Another writer came first, the catalog does not answer now, or it does
            not know whether it has committed: the batch is compared again.
        TableError: The catalog refuses the login, or what it was asked for.
    """

    def line(error: Exception) -> str:
        # Without the statement of a database.
        return secrets.line(str(getattr(error, "orig", None) or error))

    try:
        yield
    except _CHANGED as error:
        raise TableChangedError(
            f"another writer has committed to {table}: {line(error)}"
        ) from secrets.cause(error)
    except _PASSING as error:
        problem = f"the catalog of {table} does not answer"
        if is_commit:
            problem = f"the catalog does not know whether it has committed to {table}"
        raise TableChangedError(f"{problem}: {line(error)}") from secrets.cause(error)
    except _LOGIN as error:
        raise TableError(
            f"the catalog of {table} refuses the login: {line(error)}. Renew the token or the"
            " credential in the catalog's properties, and start the query again"
        ) from secrets.cause(error)
    except _LASTING as error:
        raise TableError(f"the catalog of {table} refuses: {line(error)}") from secrets.cause(error)
