#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""install_test.py BUILD: installs what is built into folders of its own and looks at it as those
who will read it do: man, the shells, systemd. A reader that this machine lacks is skipped by name."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

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

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def share(self, path):
        return self.root / "usr/share" / path

    def test_all_is_where_it_is_looked_for(self):
        for path in ("usr/bin/moestro", "etc/moestro/moestro.conf",
                     "usr/lib/systemd/system/moestro.service",
                     "usr/lib/systemd/user/moestro.service",
                     "usr/share/bash-completion/completions/moestro",
                     "usr/share/zsh/site-functions/_moestro",
                     "usr/share/fish/vendor_completions.d/moestro.fish",
                     "usr/share/man/man1/moestro.1", "usr/share/doc/moestro/gpu.conf.example",
                     "usr/share/doc/moestro/moestro.conf.example"):
            self.assertTrue((self.root / path).is_file(), path)

    def test_every_command_has_a_page(self):
        rc, said = output_of(self.root / "usr/bin/moestro", "--help")
        self.assertEqual(rc, 0)
        lines = said.split("SUBCOMMANDS:")[1].splitlines()
        commands = [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "]
        self.assertGreater(len(commands), 10)
        for command in commands:
            self.assertTrue(self.share(f"man/man1/moestro-{command}.1").is_file(), command)

    def test_units_name_the_program_where_it_is(self):
        for kind in ("system", "user"):
            unit = (self.root / f"usr/lib/systemd/{kind}/moestro.service").read_text()
            self.assertIn("ExecStart=/usr/bin/moestro serve\n", unit)
            self.assertNotIn("MOESTRO_BINDIR", unit)

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
        script = self.share("bash-completion/completions/moestro")
        for words, wanted in ((["ru"], "run"), (["run", "--kv-"], "--kv-type"),
                              (["run", "--kv-type", "q"], "q8_0"),
                              (["run", "--kv-type", "=", "q"], "q8_0"),
                              (["serve", "--api-key-file", "x"], "")):
            rc, said = output_of(
                "bash", "-c", 'source "$0"; COMP_WORDS=(moestro "$@"); COMP_CWORD=$#; _moestro; '
                'echo "${COMPREPLY[*]}"', script, *words)
            self.assertEqual((rc, said), (0, wanted + "\n"), words)

    @needs("zsh")
    def test_zsh_reads_its_completion(self):
        self.assertEqual(output_of("zsh", "-n", self.share("zsh/site-functions/_moestro")), (0, ""))

    @needs("fish")
    def test_fish_completes_commands_flags_and_values(self):
        script = self.share("fish/vendor_completions.d/moestro.fish")
        for line, wanted in (("moestro ru", "run"), ("moestro run --kv-", "--kv-type"),
                             ("moestro run --kv-type q", "q8_0")):
            rc, said = output_of("fish", "--no-config", "-c",
                                 f"source '{script}'; complete -C '{line}'",
                                 env={"HOME": self.folder.name})
            self.assertEqual(rc, 0, said)
            self.assertIn(wanted, [line.split("\t")[0] for line in said.splitlines()])

    @needs("systemd-analyze")
    def test_systemd_understands_the_units(self):
        for kind in ("system", "user"):
            rc, said = output_of("systemd-analyze", "verify", "--man=no", f"--{kind}",
                                 self.prefix / f"lib/systemd/{kind}/moestro.service",
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
