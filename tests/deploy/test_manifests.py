"""The manifests, against Kubernetes' schemas, and against the code and the image that they start."""

from __future__ import annotations

import copy
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.deploy import manifests
from tests.deploy.manifests import DEPLOY, ROOT
from tests.test_operating import rows, section
from voxcpm_core.config import EngineConfig
from voxcpm_core.control.settings import ControlConfig
from voxcpm_core.metrics import catalog

OLDEST, NEWEST = "1.27", "1.35"
OPERATORS = {"ServiceMonitor", "PrometheusRule"}  # whose schemas Kubernetes does not have
NAME = {"app.kubernetes.io/name": "voxcpm"}
READY = "/v2/models/voxcpm/ready"


def argument(name: str) -> str:
    (found,) = [each for each in manifests.container()["args"] if each.startswith(f"{name}=")]
    return str(found.partition("=")[2])


def setting_names() -> set[str]:
    return {f"VOXCPM_{field.name.upper()}" for kind in (EngineConfig, ControlConfig) for field in fields(kind)}


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_kubernetes_knows_every_field(version: str):
    checked = [each for each in manifests.all_objects() if each["kind"] not in OPERATORS]
    assert len(checked) >= 7
    for each in checked:
        kubernetes_validate.validate(each, version, strict=True)


def test_kustomize_finds_every_file_and_leaves_none_out():
    named: set[Path] = set()
    for file in DEPLOY.rglob("kustomization.yaml"):
        (customization,) = manifests.documents(file)
        for name in customization["resources"]:
            named.add(file.parent / name)
        for generator in customization.get("configMapGenerator", []):
            named |= {file.parent / name for name in generator["files"]}
    assert all(path.exists() for path in named)
    files = {path for path in DEPLOY.rglob("*") if path.is_file() and path.name != "kustomization.yaml"}
    assert files - named == {DEPLOY / "adapter.yaml"}


def test_the_image_is_pinned():
    (base,) = manifests.documents(DEPLOY / "base" / "kustomization.yaml")
    (image,) = base["images"]
    assert image["name"] == manifests.container()["image"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", image["newTag"])
    assert f'version = "{image["newTag"]}"' in (ROOT / "pyproject.toml").read_text()


def test_everything_selects_the_pods():
    deployment = manifests.one("Deployment")["spec"]
    assert deployment["template"]["metadata"]["labels"] == deployment["selector"]["matchLabels"] == NAME
    assert manifests.one("Service")["spec"]["selector"] == NAME
    assert manifests.one("Service")["metadata"]["labels"] == NAME
    fields_of = {"PodDisruptionBudget": "selector", "NetworkPolicy": "podSelector", "ServiceMonitor": "selector"}
    for kind, field in fields_of.items():
        assert manifests.one(kind)["spec"][field] == {"matchLabels": NAME}
    target = manifests.one("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", manifests.one("Deployment")["metadata"]["name"])


def test_ports():
    ports = {port["name"]: port["containerPort"] for port in manifests.container()["ports"]}
    assert ports == {"http": 8000, "grpc": 8001, "metrics": 8002}, "tritonserver's own"
    assert sorted(map(str, ports.values())) == manifests.instruction("EXPOSE").split()
    assert {port["targetPort"] for port in manifests.one("Service")["spec"]["ports"]} == set(ports)
    policy = manifests.one("NetworkPolicy")["spec"]
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == set(ports)
    (endpoint,) = manifests.one("ServiceMonitor")["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("metrics", "/metrics")


def test_settings_are_settings_of_the_code():
    environment = {each["name"]: each.get("value") for each in manifests.container()["env"]}
    ours = {name for name in environment if name.startswith("VOXCPM_")}
    assert "VOXCPM_MODEL" in ours <= setting_names()
    EngineConfig.from_settings({}, {name: environment[name] or "" for name in ours})
    dockers = re.findall(r"(VOXCPM_\w+)=", manifests.instruction("ENV"))
    assert dockers
    assert set(dockers) <= setting_names()


def test_volumes():
    mounts = {mount["mountPath"]: mount for mount in manifests.container()["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in manifests.pod()["volumes"]}
    assert {mount["name"] for mount in mounts.values()} == set(volumes)
    environment = {each["name"]: each.get("value") for each in manifests.container()["env"]}
    assert mounts[environment["VOXCPM_MODEL"]]["readOnly"]
    assert environment["VOXCPM_MODEL"] == manifests.instruction("VOLUME")
    assert volumes[mounts["/dev/shm"]["name"]]["emptyDir"]["medium"] == "Memory"
    assert "emptyDir" in volumes[mounts["/tmp"]["name"]], "the root is read-only, and sockets lie there"
    claims = [each for each in manifests.all_objects() if each["kind"] == "PersistentVolumeClaim"]
    claimed = [volume["persistentVolumeClaim"] for volume in volumes.values() if "persistentVolumeClaim" in volume]
    assert {each["metadata"]["name"] for each in claims} == {each["claimName"] for each in claimed}


def test_nothing_runs_as_root_or_gains_rights():
    security, own = manifests.pod()["securityContext"], manifests.container()["securityContext"]
    assert security["runAsNonRoot"]
    assert f"{security['runAsUser']}:{security['runAsGroup']}" == manifests.instruction("USER")
    assert own["readOnlyRootFilesystem"]
    assert not own["allowPrivilegeEscalation"]
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert not manifests.pod()["automountServiceAccountToken"]


def test_probes_ask_whether_the_model_is_ready():
    probes = {name: manifests.container()[f"{name}Probe"] for name in ("startup", "readiness", "liveness")}
    assert (ROOT / "model_repository" / READY.split("/")[3] / "config.pbtxt").is_file()
    for probe in probes.values():
        assert probe["httpGet"] == {"path": READY, "port": "http"}
    lasts_s = {name: probe["periodSeconds"] * probe["failureThreshold"] for name, probe in probes.items()}
    assert lasts_s["readiness"] < lasts_s["liveness"]
    assert lasts_s["startup"] >= 600, "weights come from slow disks"
    assert manifests.container()["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_a_pod_has_the_time_to_end_its_streams():
    line = manifests.container()["lifecycle"]["preStop"]["exec"]["command"][-1]
    found = re.fullmatch(r"sleep (\d+); voxcpm-triton drain --deadline-ms (\d+)000 \|\| sleep (\d+)", line)
    assert found is not None
    pause_s, drain_s, otherwise_s = map(int, found.groups())
    assert drain_s == otherwise_s
    needed_s = pause_s + drain_s + int(argument("--exit-timeout-secs"))
    assert needed_s < manifests.pod()["terminationGracePeriodSeconds"]


def test_what_only_operators_may_do_is_restricted():
    for name in ("--http-restricted-api", "--grpc-restricted-protocol"):
        areas, _, key = argument(name).partition(":")
        assert set(areas.split(",")) >= {"model-repository", "model-config", "shared-memory", "logging", "trace"}
        variable = key.partition("=")[2].strip("$()")
        (source,) = [each["valueFrom"] for each in manifests.container()["env"] if each["name"] == variable]
        assert source["secretKeyRef"]
    (token,) = [each for each in manifests.container()["env"] if each["name"] == "VOXCPM_ADMIN_TOKEN"]
    assert token["valueFrom"]["secretKeyRef"]


def test_pods_go_one_at_a_time_and_reach_nothing():
    assert manifests.one("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert manifests.one("Deployment")["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    policy = manifests.one("NetworkPolicy")["spec"]
    assert (policy["policyTypes"], policy["egress"]) == (["Ingress", "Egress"], [])


def test_the_autoscaler_reads_what_the_adapter_gives_and_acts_before_the_slots_are_full():
    metrics: dict[str, Any] = {
        each["pods"]["metric"]["name"]: each["pods"]["target"]
        for each in manifests.one("HorizontalPodAutoscaler")["spec"]["metrics"]
    }
    (values,) = manifests.documents(DEPLOY / "adapter.yaml")
    assert {rule["seriesQuery"].partition("{")[0] for rule in values["rules"]["custom"]} == set(metrics)
    environment = {each["name"]: each.get("value") for each in manifests.container()["env"]}
    assert int(metrics[catalog.OPEN.name]["averageValue"]) < int(environment["VOXCPM_MAX_RUNNING"])


def test_what_names_the_folder_is_listed():
    listed = [re.fullmatch(r"`([^`]+)`: `([^`]+)`", where) for _, where in rows("Another name")]
    places = {(each[1], each[2]) for each in listed if each is not None}
    assert len(places) == len(listed)
    for name, text in places:
        assert text in (ROOT / name).read_text(encoding="utf-8"), (name, text)
    written = re.compile(r'/models/voxcpm\b|model="voxcpm"|model_name: "voxcpm"')
    configs = (ROOT / "model_repository").rglob("config.pbtxt")
    files = [each for each in [*DEPLOY.rglob("*"), ROOT / "Dockerfile", *configs] if each.is_file()]
    naming = {str(each.relative_to(ROOT)) for each in files if written.search(each.read_text(encoding="utf-8"))}
    assert naming == {name for name, _ in places}


def test_the_documented_overlay_for_adapters():
    (text,) = re.findall(r"^```yaml\n(.*?)^```", section("Kubernetes"), re.M | re.S)
    (patch,) = yaml.safe_load(text)["patches"]
    deployment = copy.deepcopy(manifests.one(patch["target"]["kind"]))
    assert deployment["metadata"]["name"] == patch["target"]["name"]
    added = {}
    for each in yaml.safe_load(patch["patch"]):
        *steps, end = each["path"].split("/")[1:]
        assert (each["op"], end) == ("add", "-")
        place = deployment
        for step in steps:
            place = place[int(step) if isinstance(place, list) else step]
        place.append(each["value"])
        added[steps[-1]] = each["value"]
    kubernetes_validate.validate(deployment, NEWEST, strict=True)
    assert added["env"]["name"] == "VOXCPM_LORA_ROOT"
    assert added["env"]["value"] == added["volumeMounts"]["mountPath"]
    assert added["volumeMounts"]["name"] == added["volumes"]["name"]
    assert not added["volumeMounts"].get("readOnly"), "names are kept there"
