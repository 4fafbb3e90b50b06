#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Everything that bench/gpu.py needs on a machine without packages -> FOLDER and FOLDER.tar.xz.

usage: gpu_folder.py [--build BUILD] [--no-build] FOLDER       (bench/gpu.sh prepare)

Programs with the kernels of every instruction set, ggml's plug-ins, all libraries with the C library
and its loader, and a Python with the modules that are used. Only the GPU's own driver is the other
machine's. Unpack it there and call FOLDER/gpu.sh. Programs name their loader relative to the folder
from which they are started, which is FOLDER.
"""
import argparse
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = ["gpu.sh", "gpu.py", "gpu_runs.py", "gpu_page.py", "measure.py"]
PROGRAMS = ["moestro", "moestro-lab", "bench/moestro_llama_peer", "tests/moestro_on_device_test"]
LOADER = "lib/ld.so"
# Libraries that a GPU's driver may ask for and that a machine without a screen may lack.
FOR_DRIVERS = ["libvulkan.so.1", "libX11.so.6", "libXext.so.6", "libxcb.so.1", "libEGL.so.1", "libGLdispatch.so.0",
               "libstdc++.so.6", "libgcc_s.so.1", "libz.so.1", "libdrm.so.2", "libelf.so.1", "libpthread.so.0",
               "librt.so.1", "libdl.so.2"]
MOST_BYTES = 60 << 20  # of the archive


def build(folder):
    root = HERE.parent
    subprocess.run(["cmake", "--preset", "dev", "-B", folder, "-DMOESTRO_ISAS=all", "-DMOESTRO_BENCH=ON"], cwd=root,
                   stdout=subprocess.DEVNULL, check=True)
    targets = [pathlib.Path(program).name for program in PROGRAMS]
    subprocess.run(["cmake", "--build", folder, "--target", *targets], cwd=root, check=True)


def needed(program):
    """Paths of all libraries of a program or library, and of its loader."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    missing = re.findall(r"(\S+) => not found", said)
    if missing:
        sys.exit(f"gpu_folder.py: {program} lacks {', '.join(missing)}")
    return {pathlib.Path(path) for path in re.findall(r"(?:=> )?(/\S+) \(0x", said)}


def installed():
    """Name -> path of what the system's loader finds."""
    said = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    found = {}
    for name, path in re.findall(r"^\s+(\S+) \(libc6,x86-64[^)]*\) => (\S+)", said, re.MULTILINE):
        found.setdefault(name, pathlib.Path(path))
    return found


def plug_ins(build_folder):
    """ggml's CPU variants and Vulkan, from the folder for which the programs were built."""
    folder = re.search(r"MOESTRO_GGML_BACKENDS=\W*?(/[\w/.-]+)", (build_folder / "build.ninja").read_text())
    if folder is None:
        sys.exit(f"gpu_folder.py: {build_folder} names no folder of ggml's plug-ins")
    return [path for path in sorted(pathlib.Path(folder[1]).glob("libggml-*.so"))
            if path.name.startswith(("libggml-cpu-", "libggml-vulkan"))]


def name_loader(program):
    """Puts LOADER in place of the program's loader (PT_INTERP), whose name is longer."""
    with program.open("r+b") as file:
        header = file.read(64)
        if header[:5] != b"\x7fELF\x02":
            return
        table, size, count = struct.unpack_from("<Q", header, 32)[0], *struct.unpack_from("<HH", header, 54)
        for i in range(count):
            file.seek(table + i * size)
            kind, _, offset, _, _, length = struct.unpack("<IIQQQQ", file.read(40))
            if kind != 3:
                continue
            name = LOADER.encode() + b"\0"
            if len(name) > length:
                sys.exit(f"gpu_folder.py: no room for {LOADER} in {program}")
            file.seek(offset)
            file.write(name.ljust(length, b"\0"))


def copied(path, folder, name=None, strips=True):
    target = folder / (name or path.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path.resolve(), target)
    target.chmod(0o755)
    if strips:
        subprocess.run(["strip", "--strip-unneeded", target], check=False, stderr=subprocess.DEVNULL)
    return target


def used_modules():
    """(path, path below Python's prefix) of every module that the scripts load, and Python itself."""
    script = ("import sys; sys.path.insert(0, sys.argv[1]); import gpu\n"
              # What Python loads when it is needed: for --help and for errors.
              "import encodings.ascii, encodings.latin_1, encodings.idna, textwrap, traceback, linecache\n"
              "print(sys.base_prefix, sys.executable, f'{sys.version_info[0]}.{sys.version_info[1]}', sep='\\n')\n"
              "for m in list(sys.modules.values()):\n"
              "  if getattr(m, '__file__', None): print(m.__file__)\n")
    said = subprocess.run([sys.executable, "-s", "-S", "-B", "-c", script, str(HERE)], capture_output=True, text=True,
                          check=True).stdout.splitlines()
    prefix, program, version, *files = said
    modules = []
    for path in map(pathlib.Path, files):
        if HERE in path.parents:
            continue
        below = path.as_posix().split(f"/python{version}/", 1)
        if len(below) == 2:
            modules.append((path, pathlib.Path(f"lib/python{version}") / below[1]))
    # Python looks for this folder to find its own.
    return pathlib.Path(program).resolve(), version, modules, pathlib.Path(prefix)


def gather(folder, build_folder):
    found = installed()
    libraries = {}

    def take(path):
        for library in needed(path):
            libraries[library.name] = library

    (folder / "bin").mkdir(parents=True)
    for program in PROGRAMS:
        path = build_folder / program
        take(path)
        name_loader(copied(path, folder / "bin"))
    for path in plug_ins(build_folder):
        take(path)
        copied(path, folder / "bin")
    for name in FOR_DRIVERS:
        if name in found:
            libraries[name] = found[name]
            take(found[name])
        else:
            print(f"gpu_folder.py: no {name} here; a driver that needs it must bring it")
    python, version, modules, _ = used_modules()
    take(python)
    name_loader(copied(python, folder / "bin", "python3"))
    for path, below in modules:
        if path.suffix == ".so":
            take(path)
        copied(path, folder / "python", below, strips=path.suffix == ".so")
    (folder / f"python/lib/python{version}/lib-dynload").mkdir(parents=True, exist_ok=True)
    for name, path in libraries.items():
        copied(path, folder / "lib", "ld.so" if name.startswith("ld-linux") else name)
    for script in SCRIPTS:
        copied(HERE / script, folder, strips=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(HERE.parent / "build/gpu"))
    parser.add_argument("--no-build", action="store_true", help="take the programs that are there")
    parser.add_argument("folder")
    args = parser.parse_args()
    folder = pathlib.Path(args.folder).resolve()
    archive = folder.with_name(folder.name + ".tar.xz")
    if folder.exists() or archive.exists():
        sys.exit(f"gpu_folder.py: {folder} or {archive.name} is there already; remove it or name another")
    if not args.no_build:
        build(pathlib.Path(args.build).resolve())
    aside = folder.with_name(folder.name + ".part")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    gather(aside, pathlib.Path(args.build).resolve())
    with tarfile.open(aside / "archive", "w:xz", preset=6) as tar:
        tar.add(aside, folder.name, filter=lambda entry: None if entry.name.endswith("/archive") else entry)
    (aside / "archive").rename(archive)
    aside.rename(folder)
    size = archive.stat().st_size
    print(f"{archive}: {size / 2**20:.1f} MiB")
    if size > MOST_BYTES:
        sys.exit(f"gpu_folder.py: more than {MOST_BYTES >> 20} MiB")


if __name__ == "__main__":
    main()
