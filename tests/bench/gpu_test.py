#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bench/gpu.py with made-up programs: each figure is measured once, whatever others do.

usage: gpu_test.py SOURCE"""
import csv
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

source = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(source / "bench"))
import gpu_folder  # noqa: E402

# A program that does what its arguments and files beside it say, and notes that it was called.
PROGRAM = r'''
import json, pathlib, sys, time
here = pathlib.Path(__file__).parent
name, words = pathlib.Path(__file__).name, sys.argv[1:]
def of(flag):
    return words[words.index(flag) + 1] if flag in words else None
with (here / "calls").open("a") as calls:
    print(name, *words, file=calls)
if name == "moestro_llama_peer":
    there = 8 - int(of("--cpu-moe") or 0)
    if of("--moe-cache") and (here / "hang").exists():
        time.sleep(1000)
    print(json.dumps({"version": "0.7.0", "ggml": "0.27.0", "device_bytes": 1_000_000_000 + there * 125_000_000,
                      "prefill_tokens": int(of("-p")), "prefill_tps": 1000.0, "decode_tokens": 4,
                      "decode_tps": 10.0 + there}))
elif name == "moestro_on_device_test":
    print("[  FAILED  ] 1 test, listed below" if "Agreement" in words[0] else "[  PASSED  ] 2 tests.")
    sys.exit("Agreement" in words[0])
elif words[0] == "synth":
    pathlib.Path(of("-o")).write_bytes(bytes(1000))
elif words[0] == "devices":
    print(json.dumps({"devices": [{"name": "Vulkan0", "description": "A card", "type": "gpu",
                                   "memory_total": 8 << 30}]}))
elif words[0] == "inspect":
    print(json.dumps({"name": "small", "file_bytes": 1000, "layers": 8, "expert_bytes": 1_000_000_000,
                      "experts_per_layer": 4, "experts_used": 2,
                      "device_fits": [{"vram": 2_000_000_000}]}))
elif words[0] == "bench":
    if (here / "slow").exists():
        time.sleep(1000)
    if of("--vram") and of("--vram").isdigit() and int(of("--vram")) < 1_300_000_000:
        sys.exit("no room for an expert")
    on_cpu = of("--device") == "cpu"
    print(json.dumps({"prefill_tokens": int(of("-p")), "prefill_tps": 100.0 if on_cpu else 2000.0,
                      "decode_tokens": 4, "decode_tps": 10.0 if on_cpu else 30.0, "percent_of_bound": 50.0,
                      "devices": [] if on_cpu else [{"bytes": 1 << 30, "driver": {"waits": 7}}]}))
elif words[0] == "run":
    print("Once upon a time")
else:
    print("{}")
'''


def made_up(folder):
    build = folder / "build"
    for place in ("moestro", "bench/moestro_llama_peer", "tests/moestro_on_device_test"):
        path = build / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!{sys.executable} -IS{PROGRAM}")
        path.chmod(0o755)
    return build


def command(folder, *words):
    return [source / "bench/gpu.sh", "--small", "--build", folder / "build", "--scratch", folder / "scratch", "-o",
            folder / "out", *words]


def call(folder, *words):
    return subprocess.run(command(folder, *words), text=True, capture_output=True, timeout=120, check=False)


def calls(folder):
    return sum(len(path.read_text().splitlines()) for path in folder.glob("build/**/calls"))


def figures(folder):
    return json.loads((folder / "out.json").read_text())


def test_everything_is_measured_once(folder):
    made_up(folder)
    done = call(folder, "--rounds", "2")
    assert done.returncode == 0 and "nothing is left" in done.stdout, done
    page = (folder / "out.md").read_text()
    assert "| half | 14.0 | 10.0 | 30.0 | 2.14× (≥ 1.3, reached) | 3.00× (≥ 1.5, reached) |" in page, page
    assert "**missed**" not in page.split("## Experts")[0].split("## Prompts")[0].split("## Decode")[1], page
    # Memory as llama.cpp took; too little of it fails, and the page says why.
    half = figures(folder)["decode-half-moestro.1"]["command"]
    assert half[half.index("--vram") + 1] == str(1_500_000_000), half
    assert "no room for an expert" in page, page
    assert "`DeviceAgreement.*` | 0 | 1 | 0 | failed" in page, page
    rows = list(csv.DictReader((folder / "out.csv").open()))
    assert {row["round"] for row in rows} == {"1", "2"}, rows
    assert [row["waits"] for row in rows if row["name"] == "decode-all-moestro"] == ["7", "7"], rows
    assert not list(pathlib.Path("/dev/shm").glob("moestro-gpu-*/small*")), "a copy of the model was left"
    before = calls(folder)
    assert call(folder, "--rounds", "2").returncode == 0
    assert calls(folder) == before, "measured again"
    call(folder, "--rounds", "1", "--again", "disk")
    assert calls(folder) - before in (4, 5), "disk: the machine's devices and model, and three figures"


def test_a_program_that_hangs_costs_its_time_alone(folder):
    build = made_up(folder)
    (build / "bench/hang").touch()
    began = time.monotonic()
    done = call(folder, "--rounds", "1", "--patience", "0.02", "decode")
    assert done.returncode == 0 and time.monotonic() - began < 30, done
    assert figures(folder)["decode-half-llama-cache.1"]["state"] == "timeout"
    assert figures(folder)["decode-tenth-llama.1"]["state"] == "ok"
    assert "| half | 14.0 | timeout | 30.0 |" in (folder / "out.md").read_text()


def test_what_the_time_does_not_suffice_for_is_left(folder):
    build = made_up(folder)
    (build / "slow").touch()
    done = call(folder, "--rounds", "1", "--minutes", "0.22", "decode")
    assert done.returncode == 0 and "minutes are over" in done.stdout, done
    assert "decode-cpu-moestro.1" not in figures(folder), "the end of a call is no figure's"
    (build / "slow").unlink()
    assert call(folder, "--rounds", "1", "decode").returncode == 0
    assert figures(folder)["decode-cpu-moestro.1"]["state"] == "ok"


def test_an_interruption_leaves_what_there_is(folder):
    build = made_up(folder)
    assert call(folder, "--rounds", "1", "disk").returncode == 0
    kept = len(figures(folder))
    (build / "slow").touch()
    process = subprocess.Popen(command(folder, "--rounds", "1", "decode"), stdout=subprocess.PIPE, text=True)
    while "bench" not in (build / "calls").read_text().splitlines()[-1] or "--preload" not in (
            build / "calls").read_text().splitlines()[-1]:
        time.sleep(0.05)
    other = call(folder, "disk")
    assert other.returncode != 0 and "another call" in other.stderr, other
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 130 and "interrupted" in out, out
    assert len(figures(folder)) >= kept and (folder / "out.md").exists()
    left = subprocess.run(["pgrep", "-f", str(build / "moestro")], capture_output=True, text=True, check=False)
    assert not left.stdout, "a measured program outlived the call"


def test_results_that_do_not_fit_are_named(folder):
    made_up(folder)
    (folder / "out.json").write_text('{"decode')
    done = call(folder, "page")
    assert done.returncode != 0 and "out.json cannot be read" in done.stderr, done
    (folder / "out.json").unlink()
    assert call(folder, "page").returncode == 0
    done = call(folder, "--routing", "even", "page")
    assert done.returncode != 0 and "other settings" in done.stderr, done
    done = call(folder, "speed")
    assert done.returncode == 2 and "no part is called 'speed'" in done.stderr, done


def test_a_program_names_its_loader_from_its_folder(folder):
    program = gpu_folder.copied(pathlib.Path(shutil.which("env")).resolve(), folder / "bin", "env")
    gpu_folder.name_loader(program)
    elf = program.read_bytes()
    if struct.unpack_from("<H", elf, 18)[0] != 62:
        return
    assert b"lib/ld.so\0" in elf
    loader = pathlib.Path("/lib64/ld-linux-x86-64.so.2").resolve()
    gpu_folder.copied(loader, folder / "lib", "ld.so", strips=False)
    assert subprocess.run([program, "true"], cwd=folder, check=False).returncode == 0


def main():
    os.environ.pop("GGML_BACKEND_PATH", None)
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            began = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                test(pathlib.Path(folder))
            print(f"{name}: ok, {time.monotonic() - began:.1f} s", flush=True)


main()
