#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""install_test.py BUILD: installs what is built into folders of its own and looks at it as those
who will read it do: man, the shells, systemd. A reader that this machine lacks is skipped by name."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCES = pathlib.Path(__file__).resolve().parents[2]
BUILD = sys.argv.pop(1) if len(sys.argv) > 1 else ""


def output_of(*command, env=None):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          env={**os.environ, **(env or {})}, check=False, timeout=120)
    return done.returncode, done.stdout + done.stderr


def install(destdir, prefix):
    rc, said = output_of("cmake", "--install", BUILD, "--prefix", prefix,
                         env={"DESTDIR": str(destdir)})
    assert rc == 0, said
    return said


def lines_of(unit, key):
    """The values of a key in a unit's text, by its section."""
    found, section = [], ""
    for line in unit.splitlines():
        section = line if line.startswith("[") else section
        if line.startswith(key + "="):
            found.append((section, line.split("=", 1)[1]))
    return found


def condition_of(unit, system, user):
    """The shell's part of ExecCondition with other folders for /etc and ~/.config."""
    (_, text), = lines_of(unit, "ExecCondition")
    script = re.fullmatch("/bin/sh -c '(.*)'", text).group(1)
    return script.replace("/etc/moestro", str(system)).replace("%E/moestro", str(user))


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"this machine has no {program}")


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="moestro-install-")
        cls.root = pathlib.Path(cls.folder.name) / "a root"
        cls.said = install(cls.root, "/usr")
        # Once more where the units name a program that is there.
        cls.prefix = pathlib.Path(cls.folder.name) / "prefix"
        install("", cls.prefix)
        cls.odd = pathlib.Path(cls.folder.name) / "a prefix of 100%"
        install("", cls.odd)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def share(self, path):
        return self.root / "usr/share" / path

    def test_all_is_where_it_is_looked_for(self):
        for path in ("usr/bin/moestro", "usr/bin/moestro-lab", "etc/moestro/moestro.conf",
                     "usr/lib/systemd/system/moestro.service",
                     "usr/lib/systemd/user/moestro.service",
                     "usr/share/bash-completion/completions/moestro",
                     "usr/share/bash-completion/completions/moestro-lab",
                     "usr/share/zsh/site-functions/_moestro",
                     "usr/share/zsh/site-functions/_moestro-lab",
                     "usr/share/fish/vendor_completions.d/moestro.fish",
                     "usr/share/fish/vendor_completions.d/moestro-lab.fish",
                     "usr/share/man/man1/moestro.1", "usr/share/man/man1/moestro-lab.1", "usr/share/doc/moestro/gpu.conf.example",
                     "usr/share/doc/moestro/moestro.conf.example",
                     "usr/share/doc/moestro/haproxy.cfg.example",
                     "usr/share/doc/moestro/prometheus.yml.example"):
            self.assertTrue((self.root / path).is_file(), path)

    def test_every_command_has_a_page(self):
        for program, least in (("moestro", 20), ("moestro-lab", 10)):
            rc, said = output_of(self.root / "usr/bin" / program, "--help")
            self.assertEqual(rc, 0)
            lines = said.split("SUBCOMMANDS:")[1].splitlines()
            commands = [line.split()[0] for line in lines
                        if line.startswith("  ") and line[2] != " "]
            self.assertGreater(len(commands), least)
            for command in commands:
                self.assertTrue(self.share(f"man/man1/moestro-{command}.1").is_file(), command)

    def test_each_component_has_one_program_and_its_pages(self):
        pages = {}
        for component, program in (("moestro", "moestro"), ("lab", "moestro-lab")):
            root = pathlib.Path(self.folder.name) / f"component {component}"
            rc, said = output_of("cmake", "--install", BUILD, "--prefix", "/usr", "--component",
                                 component, env={"DESTDIR": str(root)})
            self.assertEqual(rc, 0, said)
            self.assertEqual([path.name for path in (root / "usr/bin").iterdir()], [program])
            pages[component] = {path.name for path in (root / "usr/share/man/man1").iterdir()}
            self.assertEqual((root / "etc").exists(), component == "moestro")
        self.assertIn("moestro-run.1", pages["moestro"])
        self.assertIn("moestro-eval.1", pages["lab"])
        self.assertFalse(pages["moestro"] & pages["lab"])

    def test_a_program_starts_the_laboratory_that_is_installed_beside_it(self):
        rc, said = output_of(self.root / "usr/bin/moestro", "synth", "--list")
        self.assertEqual(rc, 0, said)
        self.assertIn("qwen3-30b-a3b", said)

    def test_units_name_the_program_where_it_is(self):
        for kind in ("system", "user"):
            unit = (self.root / f"usr/lib/systemd/{kind}/moestro.service").read_text()
            self.assertIn("ExecStart=/usr/bin/moestro serve\n", unit)
            self.assertNotIn("@", unit.replace("@system-service", "").replace("@privileged", "")
                             .replace("@resources", ""))

    def test_a_prefix_with_blanks_and_percents_is_one_word_to_systemd(self):
        program = str(self.odd / "bin/moestro").replace("%", "%%")
        for path in ("lib/systemd/system", "share/systemd/user"):
            unit = (self.odd / path / "moestro.service").read_text()
            self.assertEqual(lines_of(unit, "ExecStart"), [("[Service]", f'"{program}" serve')])

    def test_a_users_unit_is_where_a_users_systemd_looks(self):
        self.assertTrue((self.prefix / "share/systemd/user/moestro.service").is_file())
        self.assertFalse((self.prefix / "lib/systemd/user").exists())

    def test_units_give_up_after_some_starts(self):
        for kind in ("system", "user"):
            unit = (self.root / f"usr/lib/systemd/{kind}/moestro.service").read_text()
            self.assertEqual(lines_of(unit, "StartLimitIntervalSec"), [("[Unit]", "10min")])
            self.assertEqual(lines_of(unit, "StartLimitBurst"), [("[Unit]", "5")])

    def test_conditions_tell_no_model_from_settings_that_cannot_be_read(self):
        for kind in ("system", "user"):
            unit = (self.root / f"usr/lib/systemd/{kind}/moestro.service").read_text()
            with tempfile.TemporaryDirectory(dir=self.folder.name) as folder:
                etc, own = pathlib.Path(folder) / "etc", pathlib.Path(folder) / "an own"
                script = condition_of(unit, etc, own)

                def result(model="", script=script):
                    return output_of("sh", "-c", script, env={"MOESTRO_MODEL": model})[0]
                self.assertEqual((result(), result("x.gguf")), (1, 0), kind)
                etc.mkdir()
                own.mkdir()
                self.assertEqual(result(), 1, kind)
                settings = (etc if kind == "system" else own) / "moestro.conf"
                for text, wanted in (("# model = x\nmodel =\n", 1), (" model= x.gguf\n", 0)):
                    settings.write_text(text)
                    self.assertEqual(result(), wanted, (kind, text))
                settings.unlink()
                settings.mkdir()  # which nobody can read, root neither
                self.assertEqual(result(), 255, kind)

    def test_what_is_installed_may_be_read_by_all_whatever_the_umask(self):
        # CMake 3.25 makes the folders above with the caller's umask.
        for goal in ("install", "deb"):
            rc, said = output_of("make", "-n", "-C", SOURCES, goal, "SETUP=")
            self.assertEqual(rc, 0, said)
            lines = said.replace("\\\n", "").splitlines()
            line, = [line for line in lines if "--install" in line or "cpack" in line]
            self.assertTrue(line.startswith("umask 022; "), line)

    def test_purging_keeps_models_and_names_them(self):
        script = SOURCES / "packaging/debian/postrm"
        with tempfile.TemporaryDirectory(dir=self.folder.name) as folder:
            root = pathlib.Path(folder)
            for path in ("cache", "lib"):
                (root / f"var/{path}/private/moestro").mkdir(parents=True)
                (root / f"var/{path}/moestro").symlink_to("private/moestro")
            (root / "var/cache/moestro/prefix").write_text("x")
            model = root / "var/lib/moestro/a.gguf"
            model.write_text("x")
            rc, said = output_of("sh", script, "purge", env={"DPKG_ROOT": folder})
            self.assertEqual(rc, 0, said)
            self.assertIn(f"{folder}/var/lib/private/moestro is not empty and is kept", said)
            self.assertTrue(model.is_file())
            self.assertFalse((root / "var/cache/private/moestro").exists())
            self.assertFalse((root / "var/cache/moestro").is_symlink())
            model.unlink()
            rc, said = output_of("sh", script, "purge", env={"DPKG_ROOT": folder})
            self.assertEqual(rc, 0, said)
            self.assertNotIn("is kept", said)
            self.assertFalse((root / "var/lib/private/moestro").exists())
            self.assertFalse((root / "var/lib/moestro").is_symlink())

    def test_the_settings_say_how_the_service_gets_its_keys(self):
        shipped = (SOURCES / "packaging/moestro.conf").read_text()
        self.assertIn("LoadCredential=keys:", shipped)
        self.assertIn("MOESTRO_API_KEY_FILE=%d/keys", shipped)
        self.assertNotIn("api-key-file =", shipped)

    def test_installing_again_keeps_settings_that_were_changed(self):
        settings = self.root / "etc/moestro/moestro.conf"
        first = settings.read_text()
        settings.write_text("port = 9\n")
        self.assertIn("Keeping: ", install(self.root, "/usr"))
        self.assertEqual(settings.read_text(), "port = 9\n")
        settings.write_text(first)

    def test_a_users_own_prefix_gets_no_settings_of_the_machine(self):
        self.assertTrue((self.prefix / "bin/moestro").is_file())
        self.assertFalse((self.prefix / "etc").exists())

    def test_the_settings_that_are_shipped_set_nothing(self):
        home = pathlib.Path(self.folder.name) / "home"
        (home / "moestro").mkdir(parents=True)
        shipped = (self.root / "etc/moestro/moestro.conf").read_text()
        # With every line that is offered, all of them are known.
        offered = [line[2:] for line in shipped.splitlines() if " = " in line]
        self.assertGreater(len(offered), 3)
        (home / "moestro/moestro.conf").write_text("\n".join(offered + ["dance = 1"]))
        rc, said = output_of(self.root / "usr/bin/moestro", "serve",
                             env={"XDG_CONFIG_HOME": str(home)})
        self.assertEqual(rc, 2)
        self.assertIn(f":{len(offered) + 1}: there is no setting 'dance'", said)

    @needs("mandoc")
    def test_mandoc_has_nothing_to_say_of_the_pages(self):
        for page in sorted(self.share("man/man1").iterdir()):
            rc, said = output_of("mandoc", "-Tlint", "-Wwarning", page)
            self.assertEqual((rc, said), (0, ""))

    @needs("groff")
    def test_groff_has_nothing_to_say_of_the_pages(self):
        for page in sorted(self.share("man/man1").iterdir()):
            rc, said = output_of("sh", "-c", 'groff -ww -man -Tutf8 "$1" >/dev/null', "sh", page)
            self.assertEqual((rc, said), (0, ""))

    @needs("bash")
    def test_bash_completes_commands_flags_and_values(self):
        folder = self.share("bash-completion/completions")
        for words, wanted in ((["moestro", "ru"], "run"), (["moestro", "run", "--kv-"], "--kv-type"),
                              (["moestro", "run", "--kv-type", "q"], "q8_0"),
                              (["moestro", "run", "--kv-type", "=", "q"], "q8_0"),
                              (["moestro", "serve", "--api-key-file", "x"], ""),
                              (["moestro", "ev"], "eval"),
                              (["moestro", "eval", "--score-"], "--score-from"),
                              (["moestro-lab", "ev"], "eval"), (["moestro-lab", "ru"], ""),
                              (["moestro-lab", "eval", "--score-"], "--score-from")):
            rc, said = output_of(
                "bash", "-c", 'source "$0/moestro"; source "$0/moestro-lab"; COMP_WORDS=("$@"); '
                'COMP_CWORD=$(($# - 1)); "_${1/-/_}"; echo "${COMPREPLY[*]}"', folder, *words)
            self.assertEqual((rc, said), (0, wanted + "\n"), words)

    @needs("zsh")
    def test_zsh_reads_its_completion(self):
        for name in ("_moestro", "_moestro-lab"):
            self.assertEqual(output_of("zsh", "-n", self.share(f"zsh/site-functions/{name}")),
                             (0, ""))

    @needs("fish")
    def test_fish_completes_commands_flags_and_values(self):
        scripts = self.share("fish/vendor_completions.d")
        for line, wanted in (("moestro ru", "run"), ("moestro run --kv-", "--kv-type"),
                             ("moestro run --kv-type q", "q8_0"), ("moestro ev", "eval"),
                             ("moestro-lab eval --score-", "--score-from")):
            rc, said = output_of("fish", "--no-config", "-c",
                                 f"source '{scripts}/moestro.fish'; "
                                 f"source '{scripts}/moestro-lab.fish'; complete -C '{line}'",
                                 env={"HOME": self.folder.name})
            self.assertEqual(rc, 0, said)
            self.assertIn(wanted, [line.split("\t")[0] for line in said.splitlines()])

    @needs("systemd-analyze")
    def test_systemd_understands_the_units(self):
        for kind, path in (("system", self.prefix / "lib"), ("user", self.prefix / "share"),
                           ("system", self.odd / "lib")):
            rc, said = output_of("systemd-analyze", "verify", "--man=no", f"--{kind}",
                                 path / f"systemd/{kind}/moestro.service",
                                 env={"XDG_RUNTIME_DIR": self.folder.name})
            # Of our unit alone: the machine's own may have faults.
            ours = [line for line in said.splitlines() if "moestro" in line]
            self.assertEqual(ours, [], said)
            if kind == "system":
                self.assertEqual(rc, 0, said)

    @needs("systemd-analyze")
    def test_the_service_is_exposed_to_less_than_two(self):
        rc, said = output_of("systemd-analyze", "security", "--offline=true", "--threshold=19",
                             "--no-pager",
                             self.root / "usr/lib/systemd/system/moestro.service")
        self.assertEqual(rc, 0, said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
