"""docker-compose.yml and what it mounts: limits, rights and addresses of services, commands that parse."""

from pathlib import Path

import pytest
import yaml

from tidemark.cli.main import build_parser
from tidemark.config import load_config
from tidemark.demo import feed

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES = DOCUMENT["services"]
ENDS_BY_ITSELF = {"feeder"}


def filled(text):
    """Compose's variables at their defaults."""
    while "${" in text:
        before, rest = text.split("${", 1)
        variable, after = rest.split("}", 1)
        text = before + variable.split(":-", 1)[1] + after
    return text


def test_no_top_level_name_or_version_that_an_old_compose_refuses():
    assert not DOCUMENT.keys() & {"name", "version"}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_bounded_and_has_no_rights(name):
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"]
    assert service["logging"]["options"] == {"max-size": "10m", "max-file": "3"}
    assert service["restart"] == ("on-failure" if name in ENDS_BY_ITSELF else "unless-stopped")
    assert name in ENDS_BY_ITSELF or service["healthcheck"]["test"]


@pytest.mark.parametrize("name", SERVICES)
def test_an_image_has_a_version_that_is_not_latest(name):
    image = filled(SERVICES[name]["image"])
    assert ":" in image
    assert not image.endswith(":latest")


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_published_on_loopback_alone(name):
    assert all(filled(port).startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


@pytest.mark.parametrize("name", SERVICES)
def test_volumes_are_named_or_read_only(name):
    for volume in SERVICES[name].get("volumes", []):
        source, *_, mode = volume.split(":")
        assert source in DOCUMENT["volumes"] or (source.startswith("./deploy/") and mode == "ro")
        assert not source.startswith("./") or (ROOT / source).is_dir()


@pytest.mark.parametrize("name", SERVICES)
def test_dependencies_are_waited_for_until_healthy(name):
    for other, how in SERVICES[name].get("depends_on", {}).items():
        assert how == {"condition": "service_healthy"}
        assert SERVICES[other]["healthcheck"]["test"]


@pytest.mark.parametrize("name", ["coordinator", "assigner-1", "assigner-2", "writer"])
def test_commands_are_those_of_the_command_line(name):
    options = build_parser().parse_args(SERVICES[name]["command"])
    assert options.command_name == name.split("-")[0]
    assert options.http.port == 7412


def test_the_feeders_command_is_its_modules():
    options = feed.build_parser().parse_args([filled(part) for part in SERVICES["feeder"]["command"]])
    assert (options.months, options.rate) == (1, 2000)


def test_the_images_are_targets_of_the_dockerfile():
    built = {service["build"]["target"] for service in SERVICES.values() if "build" in service}
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    assert built == {"kafka", "service", "spark", "writer"}
    assert all(f" AS {target}\n" in dockerfile for target in built)
    assert dockerfile.count("\nUSER tidemark\n") == 3  # writer: spark's


def test_base_images_are_the_same_in_compose_and_dockerfile():
    base = filled(SERVICES["kafka"]["build"]["args"]["BASE_IMAGE"])
    assert f"ARG BASE_IMAGE={base}\n" in (ROOT / "deploy" / "Dockerfile").read_text()


def test_the_table_of_the_set_up_is_a_configuration(tmp_path):
    text = (ROOT / "deploy" / "table" / "flights.yaml").read_text()
    packages = "/opt/tidemark/python"
    assert packages in text
    file = tmp_path / "flights.yaml"
    file.write_text(text.replace(packages, str(ROOT / "services")))
    config = load_config(file, env={})
    assert config.spark["spark.master"] == "spark://spark-master:7077"
    assert config.kafka.bootstrap_servers == "kafka:9092"
    assert config.services.coordinator.host in SERVICES
