// SPDX-License-Identifier: MIT
#include "commands/commands.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/text.h"
#include "cli/flags.h"
#include "cli/program.h"

namespace moestro {
namespace {

constexpr const char* kRemedy =
    "install the package moestro-lab of this version, or make both in the sources with 'make lab'";

// A file's facts; kIo with the reason.
Result<struct stat> FactsOf(const std::string& path, bool follow_link) {
  struct stat facts = {};
  const int failed = follow_link ? stat(path.c_str(), &facts) : lstat(path.c_str(), &facts);
  if (failed != 0) return Fail(Errc::kIo, "cannot look at {}: {}", path, std::strerror(errno));
  return facts;
}

Status CheckTrusted(const std::string& folder, const std::string& lab) {
  LabFiles files;
  TRY(files.program, FactsOf("/proc/self/exe", true));
  TRY(files.folder, FactsOf(folder, true));
  TRY(files.link, FactsOf(lab, false));
  TRY(files.lab, FactsOf(lab, true));
  const std::string reason = ReasonForDistrust(files, geteuid());
  if (reason.empty()) return {};
  return Fail(Errc::kIo, "{} is not started: {}", lab, reason);
}

}  // namespace

std::string ReasonForDistrust(const LabFiles& files, uid_t user) {
  const auto is_ours = [&](const struct stat& facts) {
    return facts.st_uid == 0 || facts.st_uid == user || facts.st_uid == files.program.st_uid;
  };
  if (!is_ours(files.folder)) {
    return Format("its folder belongs to user {}, who is not this program's", files.folder.st_uid);
  }
  // Some file systems, and builds with umask 0, let anybody write to everything: to the program,
  // too.
  const mode_t others = S_IWOTH & ~files.program.st_mode;
  if ((files.folder.st_mode & others) != 0 && (files.folder.st_mode & S_ISVTX) == 0) {
    return "anybody may write to its folder";
  }
  for (const struct stat* facts : {&files.link, &files.lab}) {
    if (!is_ours(*facts)) {
      return Format("it belongs to user {}, who is not this program's", facts->st_uid);
    }
  }
  if (!S_ISREG(files.lab.st_mode)) return "it is no plain file";
  if ((files.lab.st_mode & others) != 0) return "anybody may write to it";
  // Builds of users with a group of their own are writable by it, as this program is.
  const bool is_same_group = files.lab.st_gid == files.program.st_gid;
  if ((files.lab.st_mode & S_IWGRP) != 0 && !is_same_group) {
    return Format("group {}, which is not this program's, may write to it", files.lab.st_gid);
  }
  return "";
}

Status StartLab(const std::string& version, char** argv) {
  const std::string command = argv[1];
  std::error_code why;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", why);
  if (why) {
    return Fail(
        Errc::kIo,
        "'moestro {}' is of moestro-lab, which is looked for beside this program, and /proc "
        "does not say where that is ({}); '{} {}' does the same",
        command, why.message(), kLabProgram, command);
  }
  const std::string folder = self.parent_path();
  std::string lab = self.parent_path() / kLabProgram;
  if (access(lab.c_str(), F_OK) != 0 && errno == ENOENT) {
    return Fail(Errc::kIo, "'moestro {}' is of moestro-lab, which is not in {}: {}", command,
                folder, kRemedy);
  }
  TRY_STATUS(CheckTrusted(folder, lab));
  std::string called = Format("{}{}", kCalledByMoestro, version);
  std::vector<char*> arguments = {lab.data(), called.data()};
  for (char** at = argv + 1; *at != nullptr; ++at) arguments.push_back(*at);
  arguments.push_back(nullptr);
  execv(lab.c_str(), arguments.data());
  return Fail(Errc::kIo, "cannot start {} for 'moestro {}': {}; {}", lab, command,
              std::strerror(errno), kRemedy);
}

std::unique_ptr<CommandLine> MakeCommandLine(const std::string& version) {
  auto made = std::make_unique<CommandLine>(
      "moestro", "Runs Mixture-of-Experts models that do not fit into memory.",
      "moestro " + version);
  CommandLine& line = *made;
  line.Footer("'moestro run' alone tells a story; 'moestro COMMAND --help' explains a command.");
  line.NameCommandForFiles("moestro run");
  AddRun(line);
  AddServe(line);
  AddHealth(line);
  AddPlan(line);
  AddPull(line);
  AddList(line);
  AddRemove(line);
  AddBench(line);
  AddInspect(line);
  AddDevices(line);
  AddDoctor(line);
  line.NameOthers({.program = std::string(kLabProgram),
                   .start = std::string(kUserProgram),
                   .commands = kLabCommands,
                   .heading = "THE LABORATORY'S, in moestro-lab beside this program (package "
                              "moestro-lab, or 'make lab')"});
  return made;
}

}  // namespace moestro
