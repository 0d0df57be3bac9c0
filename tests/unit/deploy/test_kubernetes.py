"""The Kubernetes manifests: valid by the schemas, whole, shut, and with a configuration that services take.

Nothing here asks a cluster. The first test says whether kustomize itself built what is looked at.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import kubernetes_validate
import pytest
import yaml

from tests.unit.deploy.kustomized import FOLDER, OVERLAYS, Object, build, config_file, kustomize
from tidemark.config import TableConfigFile, load_config
from tidemark.config.hoodie_section import target_file_bytes
from tidemark.stream_writer.cluster import check_surroundings
from tidemark.stream_writer.job import read_master, session_settings

VERSION: Final = "1.34"
ENVIRONMENT: Final = {
    "TIDEMARK_POD": "writer-0",
    "TIDEMARK_NAMESPACE": "elsewhere",
    "TIDEMARK_EXECUTOR_IMAGE": "registry.example/tidemark/spark:9",
    "TIDEMARK_KAFKA": "kafka.kafka.svc:9093",
    "TIDEMARK_KAFKA_USER": "tidemark",
    "TIDEMARK_KAFKA_PASSWORD": "a password",
}


@pytest.fixture(scope="module", params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def objects(overlay: str) -> list[Object]:
    return build(overlay)


@pytest.fixture(scope="module")
def executor() -> Object:
    template: Object = yaml.safe_load((FOLDER / "base" / "executor-pod.yaml").read_text())
    return template


def workloads(objects: list[Object]) -> dict[str, Object]:
    return {each["metadata"]["name"]: each for each in objects if "template" in each.get("spec", {})}


def pods(objects: list[Object], executor: Object) -> dict[str, Object]:
    """Component -> spec of its pods."""
    made = {name: each["spec"]["template"]["spec"] for name, each in workloads(objects).items()}
    return {**made, "executor": executor["spec"]}


def names(objects: list[Object], kind: str) -> set[str]:
    """Without the hashes that kustomize adds to generated ones."""
    found = {each["metadata"]["name"] for each in objects if each["kind"] == kind}
    generated = {"table", "environment"} if kind == "ConfigMap" else set()
    return {next((base for base in generated if name.startswith(f"{base}-")), name) for name in found}


def test_every_object_is_valid_by_the_schemas(overlay: str, objects: list[Object], executor: Object) -> None:
    builder = kustomize() or "what is here (no kustomize on PATH, KUSTOMIZE not set)"
    print(f"{overlay}: built by {builder}, checked against Kubernetes {VERSION}")  # noqa: T201
    for each in [*objects, executor]:
        kubernetes_validate.validate(each, VERSION, strict=True)
    kinds = {each["kind"] for each in objects}
    assert kinds >= {"Deployment", "StatefulSet", "Service", "Role", "NetworkPolicy", "PodDisruptionBudget"}


def test_validator_finds_a_wrong_key(objects: list[Object]) -> None:
    wrong = json.loads(json.dumps(workloads(objects)["writer"]))
    wrong["spec"]["template"]["spec"]["containers"][0]["securityContext"]["readOnlyRootFileSystem"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSION, strict=True)


def test_all_names_lead_somewhere(objects: list[Object], executor: Object) -> None:
    secrets = {"tidemark-tls", "tidemark-tokens", "tidemark-kafka", "tidemark-kafka-login"}
    there = {kind: names(objects, kind) for kind in ("ConfigMap", "PersistentVolumeClaim", "ServiceAccount")}
    for component, spec in pods(objects, executor).items():
        mounted = {mount["name"] for mount in spec["containers"][0]["volumeMounts"]}
        claims = {each["metadata"]["name"] for each in _claim_templates(objects, component)}
        assert mounted == {volume["name"] for volume in spec["volumes"]} | claims, component
        for kind, name in _references(spec):
            assert name in (secrets if kind == "Secret" else there[kind]), f"{component}: {kind} {name}"
    for each in objects:
        if each["kind"] == "Service":
            component = each["spec"]["selector"]["app.kubernetes.io/component"]
            ports = {port["name"] for port in _container(workloads(objects)[component])["ports"]}
            wanted = {port.get("targetPort", port["name"]) for port in each["spec"]["ports"]}
            assert wanted <= ports, each["metadata"]["name"]


def _claim_templates(objects: list[Object], component: str) -> list[Object]:
    spec = workloads(objects).get(component, {}).get("spec", {})
    return list(spec.get("volumeClaimTemplates", []))


def _references(spec: Object) -> Iterator[tuple[str, str]]:
    if "serviceAccountName" in spec:
        yield "ServiceAccount", spec["serviceAccountName"]
    for source in spec["containers"][0].get("envFrom", []):
        for key, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if key in source:
                yield kind, _plain(source[key]["name"])
    for volume in spec["volumes"]:
        if "configMap" in volume:
            yield "ConfigMap", _plain(volume["configMap"]["name"])
        if "persistentVolumeClaim" in volume:
            yield "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]
        for source in volume.get("projected", {}).get("sources", []):
            yield "Secret", source["secret"]["name"]


def _plain(name: str) -> str:
    return next((base for base in ("table", "environment") if name.startswith(f"{base}-")), name)


def _container(workload: Object) -> Object:
    found: Object = workload["spec"]["template"]["spec"]["containers"][0]
    return found


def test_whoever_asks_the_coordinator_may_reach_it(objects: list[Object]) -> None:
    """Its own pod goes through the Service as well: `kubectl exec deploy/coordinator -- tidemark status`."""
    policies = {each["metadata"]["name"]: each for each in objects if each["kind"] == "NetworkPolicy"}
    [rule] = policies["coordinator"]["spec"]["ingress"]
    [admitted] = (each["podSelector"]["matchExpressions"] for each in rule["from"])
    assert [(each["operator"], set(each["values"])) for each in admitted] == [("In", set(workloads(objects)))]


def test_every_pod_is_shut(objects: list[Object], executor: Object) -> None:
    for component, spec in pods(objects, executor).items():
        pod, [container] = spec["securityContext"], spec["containers"]
        assert pod["runAsNonRoot"] is True
        assert pod["runAsUser"] > 0
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, component
        assert spec["automountServiceAccountToken"] is (component == "writer")
        assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"], component


def test_what_merges_keep_on_disk_fits_an_executor(overlay: str, executor: Object, tmp_path: Path) -> None:
    """In Spark's folder: for each core a file group whose base file unpacks to twenty times as much, and as
    much in log files. All other folders of the pod are for little.
    """
    config = _config(overlay, tmp_path)
    cores = int(config.spark["spark.executor.cores"])
    limits = {volume["name"]: volume.get("emptyDir", {}) for volume in executor["spec"]["volumes"]}
    folder = next(name for name in limits if name.startswith("spark-local-dir-"))
    assert int(limits[folder]["sizeLimit"].removesuffix("Gi")) << 30 >= cores * 2 * 20 * target_file_bytes(
        config
    )


def test_every_service_has_probes_and_limits(overlay: str, objects: list[Object]) -> None:
    for component, workload in workloads(objects).items():
        container = _container(workload)
        assert container["resources"]["limits"]["memory"]
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert not container["image"].endswith(":latest")
        assert ":" in container["image"] or kustomize() is None
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            asked = container[probe]
            assert ("grpc" in asked) != ("httpGet" in asked), f"{component} {probe}"
            if "grpc" in asked:
                assert asked["grpc"]["port"] == ports["grpc"]
            else:
                assert asked["httpGet"]["port"] in ports
                secured = overlay == "secured"
                assert asked["httpGet"].get("scheme", "HTTP") == ("HTTPS" if secured else "HTTP")


def _config(overlay: str, folder: Path) -> TableConfigFile:
    """The overlay's table, with the schema where the pods have it."""
    text = config_file(overlay, "table.yaml").read_text()
    schema = config_file(overlay, "flights.avsc")
    (folder / "table.yaml").write_text(text.replace("/etc/tidemark/flights.avsc", str(schema)))
    return load_config(folder / "table.yaml", ENVIRONMENT)


def test_services_take_the_configuration(overlay: str, tmp_path: Path) -> None:
    config = _config(overlay, tmp_path)
    assert config.services.coordinator == ("coordinator", 7411)
    assert config.services.bind == "0.0.0.0"
    if overlay == "secured":
        assert config.security.fit_for_networks
        assert not config.services.allow_remote
        assert config.kafka.settings["security.protocol"] == "SASL_SSL"
    else:
        assert config.services.allow_remote


def test_driver_and_executors_find_each_other(
    overlay: str, objects: list[Object], executor: Object, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    section = _config(overlay, tmp_path).spark
    check_surroundings(read_master(section), section, {})
    settings = session_settings(section, (), tmp_path)
    assert settings["spark.driver.host"] == "writer-0.writer.elsewhere.svc"
    assert settings["spark.kubernetes.namespace"] == "elsewhere"
    assert settings["spark.kubernetes.container.image"] == "registry.example/tidemark/spark:9"
    ports = {
        port["name"]: port["containerPort"] for port in _container(workloads(objects)["writer"])["ports"]
    }
    assert settings["spark.driver.port"] == str(ports["driver"])
    assert settings["spark.blockManager.port"] == str(ports["blocks"])
    [container] = executor["spec"]["containers"]
    assert settings["spark.kubernetes.executor.podTemplateContainerName"] == container["name"]
    account = settings["spark.kubernetes.authenticate.executor.serviceAccountName"]
    assert account in names(objects, "ServiceAccount")
    warehouse = next(each for each in container["volumeMounts"] if each["name"] == "warehouse")
    assert _config(overlay, tmp_path).table.path.startswith(warehouse["mountPath"] + "/")


def test_executor_is_started_with_what_the_driver_put_into_its_environment(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    env = {
        "PATH": os.environ["PATH"],
        "JAVA_HOME": str(tmp_path),
        "SPARK_HOME": "/spark",
        "SPARK_CONF_DIR": "/conf",
        "SPARK_JAVA_OPT_0": "-Dspark.driver.port=7078",
        "SPARK_JAVA_OPT_1": "-Dname=two words and 'quotes'",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@writer-0.writer.tidemark.svc:7078",
        "SPARK_EXECUTOR_ID": "3",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "writer-exec-3",
    }
    script = str(FOLDER / "base" / "executor.sh")
    done = subprocess.run(["sh", script, "executor"], env=env, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == [
        "-Dspark.driver.port=7078",
        "-Dname=two words and 'quotes'",
        "-Xms512m",
        "-Xmx512m",
        "-cp",
        "/conf:/spark/jars/*",
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        "--driver-url",
        env["SPARK_DRIVER_URL"],
        "--executor-id",
        "3",
        "--cores",
        "1",
        "--app-id",
        "spark-1",
        "--hostname",
        "10.0.0.7",
        "--resourceProfileId",
        "0",
        "--podName",
        "writer-exec-3",
    ], done.stderr
    refused = subprocess.run(["sh", script, "driver"], env=env, capture_output=True, text=True, timeout=300)
    assert (refused.returncode, "executor.sh executor" in refused.stderr) == (2, True)
