"""The manifests of conf/kubernetes are valid, and agree with each other and with the code.

Kubernetes' own kinds are validated by kubernetes-validate, those of KEDA by its resource
definitions (tests/monitoring/keda). No cluster is needed, and none has run them.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from spark_groups.errors import OptionsError
from spark_groups.monitoring.endpoint import PROBES
from spark_groups.monitoring.limited_server import names_loopback
from spark_groups.spark.control.listener import EVENTS_TIMEOUT_S
from spark_groups.spark.control.shutdown import LEAVE_TIMEOUT_S
from spark_groups.spark.jobs.job_options import ConsumeOptions, load_job
from spark_groups.spark.jobs.run import COMMON
from spark_groups.wire.security.config_references import Allowed, resolved
from tests.monitoring.dashboard_setup import NAME, exported
from tests.secured import issue
from workshop.parts.elastic_reader import Reader
from workshop.parts.processes import descendants

MANIFESTS = Path(__file__).parents[2] / "conf" / "kubernetes"
KEDA = Path(__file__).parent / "keda"
KUBERNETES_VERSIONS = ("1.30", "1.37")
KEDA_GROUP = "keda.sh/v1alpha1"
SHELLS = {"sh", "bash", "dash", "ash"}
MECHANISMS = {
    "scram_sha512": "SCRAM-SHA-512",
    "scram_sha256": "SCRAM-SHA-256",
    "plaintext": "PLAIN",
}
"""KEDA's names of mechanisms of SASL, and Kafka's."""
POD = "flights-0"
LISTENS = "0A"
LOOPBACK = {
    "0100007F",
    "0000000000000000FFFF00000100007F",
    "00000000000000000000000001000000",
}
"""127.0.0.1, the same in IPv6, and ::1."""

Documents = dict[str, list[dict[str, Any]]]
"""By file name."""


def manifests() -> Documents:
    return {
        path.name: list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
        for path in sorted(MANIFESTS.glob("*.yaml"))
    }


def of_kind(documents: Documents, *kinds: str) -> list[dict[str, Any]]:
    return [each for found in documents.values() for each in found if each["kind"] in kinds]


@cache
def keda_schema(kind: str) -> dict[str, Any]:
    """KEDA's schema of a kind, without the properties that it does not know."""
    path = KEDA / f"keda.sh_{kind.lower()}s.yaml"
    definition = yaml.safe_load(path.read_text(encoding="utf-8"))
    (version,) = definition["spec"]["versions"]
    assert f"{definition['spec']['group']}/{version['name']}" == KEDA_GROUP
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    close(schema)
    schema["properties"]["metadata"] = {"type": "object", "required": ["name"]}
    return schema


def close(schema: dict[str, Any]) -> None:
    """Refuse unknown properties, which an API server drops."""
    if "properties" in schema:
        schema.setdefault("additionalProperties", False)
    for each in (*schema.get("properties", {}).values(), schema.get("items"), schema.get("not")):
        if isinstance(each, dict):
            close(each)


def schema_problems(documents: Documents) -> Iterator[str]:
    for name, found in documents.items():
        for document in found:
            try:
                if document["apiVersion"] == KEDA_GROUP:
                    jsonschema.Draft202012Validator(keda_schema(document["kind"])).validate(
                        document
                    )
                    continue
                for version in KUBERNETES_VERSIONS:
                    kubernetes_validate.validate(document, version, strict=True)
            except (kubernetes_validate.ValidationError, jsonschema.ValidationError) as error:
                yield f"{name}: {document['kind']}: {error.message}"


def environment(container: Mapping[str, Any], ca: str) -> dict[str, str]:
    """The variables of a container, with a value for each that comes from elsewhere."""
    made = {"POD_NAME": POD, "KAFKA_CA": ca}
    return {
        each["name"]: each.get("value", made.get(each["name"], "drawn"))
        for each in container["env"]
    }


def job_of(
    workload: Mapping[str, Any], documents: Documents, given: Mapping[str, str], directory: Path
) -> ConsumeOptions:
    """The options of the job as its pod reads them; variables in arguments have values."""
    pod = workload["spec"]["template"]["spec"]
    container = pod["containers"][0]
    words = [re.sub(r"\$\((\w+)\)", lambda it: given[it[1]], each) for each in container["args"]]
    settings = []
    config = None
    for argument, value in zip(words[::2], words[1::2], strict=True):
        if argument == "--config":
            config = Path(value)
        elif argument == "--set":
            settings.append((argument, *value.split("=", 1)))
        else:
            settings.append((argument, COMMON[argument][0], value))
    assert config is not None
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    volumes = {each["name"]: each for each in pod["volumes"]}
    source = volumes[mounts[str(config.parent)]]["configMap"]["name"]
    maps = {each["metadata"]["name"]: each["data"] for each in of_kind(documents, "ConfigMap")}
    path = directory / config.name
    path.write_text(maps[source][config.name], encoding="utf-8")
    return load_job(ConsumeOptions, path, settings)


def pod_problems(workload: Mapping[str, Any], options: ConsumeOptions) -> Iterator[str]:
    spec = workload["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    program, *rest = container["command"]
    if Path(program).name in SHELLS:
        yield f"the command starts a shell: SIGTERM reaches {program} only"
    elif rest[0] != "-m" or importlib.util.find_spec(rest[1]) is None:
        yield f"there is no module {rest}"
    end_s = options.stop_timeout_s + LEAVE_TIMEOUT_S + EVENTS_TIMEOUT_S
    if spec["terminationGracePeriodSeconds"] <= end_s:
        yield f"terminationGracePeriodSeconds must be more than {end_s:g}"
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        if asked["path"] not in PROBES:
            yield f"{probe}: the endpoint has no path {asked['path']}"
        if str(ports.get(asked["port"])) != options.source.get("metricsPort"):
            yield f"{probe}: nothing listens on port {asked['port']}"
    if names_loopback(options.source.get("metricsHost", "127.0.0.1")):
        yield "metricsHost: probes do not reach the loopback interface of a pod"
    if spec.get("automountServiceAccountToken") is not False:
        yield "automountServiceAccountToken: the pod gets a token that it does not need"
    if options.application_name != POD:
        yield "the application is not named after its pod: two pods would share a checkpoint"
    is_static = options.source.get("kafka.group.instance.id") == POD
    if is_static is not (workload["kind"] == "StatefulSet"):
        yield "only pods of a StatefulSet keep their name: they alone are static members"
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    own = {each["name"] for each in spec["volumes"] if "emptyDir" in each}
    own |= {each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", ())}
    if mounts.get(options.checkpoint_location) not in own:
        yield f"no volume of the pod alone is mounted at {options.checkpoint_location}"


def sink_problem(name: str, value: object) -> str | None:
    """Return why the reference to a secret cannot be resolved."""
    try:
        resolved(str(value), Allowed.by(os.environ))
    except ValueError as error:
        return f"sink.options.{name}: {error}"
    return None


def scaler_problems(documents: Documents, source: Mapping[str, str]) -> Iterator[str]:
    deployments = {each["metadata"]["name"]: each for each in of_kind(documents, "Deployment")}
    logins = {
        each["metadata"]["name"]: each for each in of_kind(documents, "TriggerAuthentication")
    }
    for scaled in of_kind(documents, "ScaledObject"):
        target = deployments.get(scaled["spec"]["scaleTargetRef"]["name"])
        if target is None:
            yield "scaleTargetRef names no Deployment"
        elif "replicas" in target["spec"]:
            yield "an apply of the Deployment would set back its replicas"
        if scaled["spec"]["minReplicaCount"] < 1:
            yield "minReplicaCount: a group without members loses its committed offsets in time"
        for trigger in scaled["spec"]["triggers"]:
            if trigger["type"] == "kafka":
                yield from kafka_problems(trigger, source, logins)
            else:
                yield from prometheus_problems(trigger, source)


def kafka_problems(
    trigger: Mapping[str, Any], source: Mapping[str, str], logins: Mapping[str, Any]
) -> Iterator[str]:
    asked = trigger["metadata"]
    for name, key in (
        ("bootstrapServers", "kafka.bootstrap.servers"),
        ("consumerGroup", "kafka.group.id"),
        ("topic", "subscribe"),
        ("offsetResetPolicy", "startingOffsets"),
    ):
        if asked[name] != source[key]:
            yield f"{name} is {asked[name]}, and {key} of the job {source[key]}"
    if MECHANISMS.get(asked["sasl"]) != source["kafka.sasl.mechanism"]:
        yield f"sasl is {asked['sasl']}, not that of the job"
    if trigger["authenticationRef"]["name"] not in logins:
        yield f"there is no TriggerAuthentication {trigger['authenticationRef']['name']}"


def prometheus_problems(trigger: Mapping[str, Any], source: Mapping[str, str]) -> Iterator[str]:
    query = trigger["metadata"]["query"]
    for name in NAME.findall(query):
        if name not in exported():
            yield f"{name} is not exported"
    if f'group="{source["kafka.group.id"]}"' not in query:
        yield f"{query} asks another group than that of the job"


def policy_problems(documents: Documents) -> Iterator[str]:
    """Return which pods and ports the network policy leaves open."""
    (policy,) = of_kind(documents, "NetworkPolicy") or ({"spec": {"ingress": ()}},)
    (rule,) = policy["spec"]["ingress"] or ({"ports": ()},)
    if [each["port"] for each in rule["ports"]] != ["metrics"] or not rule.get("from"):
        yield "NetworkPolicy: only the metrics port may be open, and not to all"
    selected = policy["spec"].get("podSelector", {}).get("matchLabels")
    for workload in of_kind(documents, "Deployment", "StatefulSet"):
        if workload["spec"]["template"]["metadata"]["labels"] != selected:
            yield f"NetworkPolicy: it does not select the pods of the {workload['kind']}"


def secret_problems(documents: Documents) -> Iterator[str]:
    """Secrets are only referred to, and KEDA uses those of the pods."""
    if of_kind(documents, "Secret"):
        yield "a secret is in a file"
    refs = {
        (ref["name"], ref["key"])
        for workload in of_kind(documents, "Deployment", "StatefulSet")
        for each in workload["spec"]["template"]["spec"]["containers"][0]["env"]
        if (ref := each.get("valueFrom", {}).get("secretKeyRef"))
    }
    for login in of_kind(documents, "TriggerAuthentication"):
        for each in login["spec"]["secretTargetRef"]:
            if (each["name"], each["key"]) not in refs:
                yield f"the pods have no secret {each['name']} with {each['key']}"


def problems(documents: Documents, directory: Path, ca: str) -> list[str]:
    """Everything that is wrong with the manifests, as sentences."""
    found = list(schema_problems(documents))
    if found:
        return found
    for workload in of_kind(documents, "Deployment", "StatefulSet"):
        given = environment(workload["spec"]["template"]["spec"]["containers"][0], ca)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in given.items():
                patch.setenv(name, value)
            try:
                options = job_of(workload, documents, given, directory)
            except (OptionsError, KeyError) as error:
                found.append(f"{workload['kind']}: {error!r}")
                continue
            found += filter(None, itertools.starmap(sink_problem, options.sink_options.items()))
        found += pod_problems(workload, options)
        found += scaler_problems(documents, options.source)
    return [*dict.fromkeys(found), *policy_problems(documents), *secret_problems(documents)]


@pytest.fixture(scope="module")
def ca() -> str:
    return issue("an authority").certificate_pem


def test_manifests_are_valid_and_agree(tmp_path: Path, ca: str) -> None:
    documents = manifests()
    kinds = {each["kind"] for found in documents.values() for each in found}
    assert kinds >= {"ConfigMap", "Deployment", "StatefulSet", "ScaledObject"}
    assert problems(documents, tmp_path, ca) == []


def test_pods_run_the_command_that_make_elastic_runs(tmp_path: Path) -> None:
    """No cluster runs the manifests, so their command is tried there."""
    tried = Reader("flights", tmp_path, ())._program()
    for workload in of_kind(manifests(), "Deployment", "StatefulSet"):
        container = workload["spec"]["template"]["spec"]["containers"][0]
        (submit,) = (e["value"] for e in container["env"] if e["name"] == "PYSPARK_SUBMIT_ARGS")
        assert container["command"][1:] == tried[2:]
        for shown in (f"PYSPARK_SUBMIT_ARGS={submit}", tried[0]):
            assert re.fullmatch(r"PYSPARK_SUBMIT_ARGS=--master .* pyspark-shell", shown)


@pytest.mark.spark
def test_spark_of_a_pod_listens_on_loopback_alone(tmp_path: Path) -> None:
    program = (
        "from pyspark.sql import SparkSession; spark = SparkSession.builder.getOrCreate();"
        " print('running', flush=True); input()"
    )
    submitted = {
        each["value"]
        for workload in of_kind(manifests(), "Deployment", "StatefulSet")
        for each in workload["spec"]["template"]["spec"]["containers"][0]["env"]
        if each["name"] == "PYSPARK_SUBMIT_ARGS"
    }
    (submit,) = submitted
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": submit},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as application:
        assert application.stdin is not None
        assert application.stdout is not None
        try:
            assert application.stdout.readline() == b"running\n"
            found = {
                address
                for pid in (application.pid, *descendants(application.pid))
                for address in listened_on(pid)
            }
        finally:
            application.stdin.close()
    assert found
    assert {each for each in found if each not in LOOPBACK} == set()


def listened_on(pid: int) -> Iterator[str]:
    """Yield the addresses at which a process listens, as the kernel writes them."""
    with contextlib.suppress(FileNotFoundError):
        sockets = {os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()}
        for name in ("tcp", "tcp6"):
            for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENS and f"socket:[{fields[9]}]" in sockets:
                    yield fields[1].partition(":")[0]


def test_both_scaled_objects_scale_alike() -> None:
    by_records, by_time = of_kind(manifests(), "ScaledObject")
    assert by_records["metadata"] == by_time["metadata"]
    assert {**by_records["spec"], "triggers": ()} == {**by_time["spec"], "triggers": ()}


def pod_of(documents: Documents) -> dict[str, Any]:
    pod: dict[str, Any] = documents["deployment.yaml"][0]["spec"]["template"]["spec"]
    return pod


def container_of(documents: Documents) -> dict[str, Any]:
    container: dict[str, Any] = pod_of(documents)["containers"][0]
    return container


def trigger_of(documents: Documents, name: str = "scaledobject.yaml") -> dict[str, Any]:
    trigger: dict[str, Any] = documents[name][0]["spec"]["triggers"][0]
    return trigger


def edit_toml(documents: Documents, old: str, new: str) -> None:
    data = documents["configmap.yaml"][0]["data"]
    assert old in data["consume.toml"]
    data["consume.toml"] = data["consume.toml"].replace(old, new)


def drop_variable(documents: Documents, name: str) -> None:
    container = container_of(documents)
    container["env"] = [each for each in container["env"] if each["name"] != name]


BROKEN: Mapping[str, tuple[Callable[[Documents], object], str]] = {
    "misspelt field": (
        lambda it: pod_of(it).update(terminationGracePeriod=90),
        "'terminationGracePeriod' was unexpected",
    ),
    "wrong type": (
        lambda it: it["statefulset.yaml"][1]["spec"].update(replicas="three"),
        "'three' is not of type",
    ),
    "token of the API server": (
        lambda it: pod_of(it).pop("automountServiceAccountToken"),
        "automountServiceAccountToken",
    ),
    "policy that opens all ports": (
        lambda it: it["networkpolicy.yaml"][0]["spec"]["ingress"][0].update(ports=[]),
        "only the metrics port may be open",
    ),
    "misspelt field of KEDA": (
        lambda it: it["scaledobject.yaml"][0]["spec"].update(maxReplicas=3),
        "'maxReplicas' was unexpected",
    ),
    "number in a trigger": (
        lambda it: trigger_of(it)["metadata"].update(lagThreshold=36000),
        "36000 is not of type 'string'",
    ),
    "unknown fallback": (
        lambda it: it["scaledobject.yaml"][0]["spec"]["fallback"].update(behavior="none"),
        "'none' is not one of",
    ),
    "unknown option": (
        lambda it: edit_toml(it, "startingOffsets", "startingOffset"),
        "startingOffset",
    ),
    "variable that is not set": (lambda it: drop_variable(it, "KAFKA_CA"), "KAFKA_CA"),
    "variable of the sink that is not set": (
        lambda it: drop_variable(it, "AWS_ACCESS_KEY_ID"),
        "AWS_ACCESS_KEY_ID",
    ),
    "variable that may not be read": (
        lambda it: container_of(it)["env"][3].update(value="KAFKA_.*"),
        "SPARK_GROUPS_ALLOWLIST_PATTERN",
    ),
    "shell": (
        lambda it: container_of(it).update(command=["sh", "-c", "python -m x"]),
        "starts a shell",
    ),
    "unknown module": (
        lambda it: container_of(it).update(command=["python", "-m", "spark_groups.jobs.consumer"]),
        "there is no module",
    ),
    "short grace period": (
        lambda it: pod_of(it).update(terminationGracePeriodSeconds=45),
        "must be more than 45",
    ),
    "unknown path of a probe": (
        lambda it: container_of(it)["livenessProbe"]["httpGet"].update(path="/healthz"),
        "no path /healthz",
    ),
    "port of a probe": (
        lambda it: container_of(it)["ports"][0].update(containerPort=9465),
        "nothing listens",
    ),
    "metrics on the loopback interface": (
        lambda it: edit_toml(it, '"0.0.0.0"', '"127.0.0.1"'),
        "loopback",
    ),
    "one checkpoint for all pods": (
        lambda it: container_of(it)["args"].__setitem__(3, "flights"),
        "share a checkpoint",
    ),
    "checkpoint in the container": (
        lambda it: edit_toml(it, "/var/lib/flights/checkpoints", "/tmp/checkpoints"),
        "no volume",
    ),
    "static members of a Deployment": (
        lambda it: container_of(it)["args"].extend(
            ["--set", "source.kafka.group.instance.id=$(POD_NAME)"]
        ),
        "static members",
    ),
    "another group": (
        lambda it: trigger_of(it)["metadata"].update(consumerGroup="flights"),
        "consumerGroup is flights",
    ),
    "another topic": (
        lambda it: edit_toml(it, 'subscribe = "flights"', 'subscribe = "delays"'),
        "topic is flights",
    ),
    "another Deployment": (
        lambda it: it["scaledobject.yaml"][0]["spec"]["scaleTargetRef"].update(name="other"),
        "names no Deployment",
    ),
    "replicas beside the autoscaler": (
        lambda it: it["deployment.yaml"][0]["spec"].update(replicas=2),
        "set back its replicas",
    ),
    "metric that is not exported": (
        lambda it: trigger_of(it, "scaledobject_time.yaml")["metadata"].update(
            query='max(kafka_group_behind_seconds_maximum{group="flight-readers"})'
        ),
        "is not exported",
    ),
    "secret that the pods do not have": (
        lambda it: it["scaledobject.yaml"][1]["spec"]["secretTargetRef"][0].update(key="user"),
        "no secret flights-kafka with user",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_manifest_is_refused(case: str, tmp_path: Path, ca: str) -> None:
    documents = copy.deepcopy(manifests())
    breaks, expected = BROKEN[case]
    breaks(documents)
    assert expected in "\n".join(problems(documents, tmp_path, ca))
