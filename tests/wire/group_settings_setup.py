"""Shared by test_group_settings.py and other tests."""

from __future__ import annotations

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from workshop.parts.brokers import ANSWER_S, admin

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


def add_acl(
    servers: str,
    resource: ResourceType,
    name: str,
    operation: AclOperation,
    permission: AclPermissionType,
) -> None:
    everyone = (ResourcePatternType.LITERAL, "User:*", "*", operation, permission)
    acl = AclBinding(resource, name, *everyone)
    client = admin(servers)
    client.create_acls([acl])[acl].result(ANSWER_S)
