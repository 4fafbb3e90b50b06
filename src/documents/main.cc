// SPDX-License-Identifier: MIT
// moestro_write_documents VERSION DATE FOLDER: writes man pages and completions of the commands and
// flags that both programs are built with, into FOLDER/user and FOLDER/lab. The build runs this
// program, so that documents and programs never differ.
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>

#include "base/result.h"
#include "base/text.h"
#include "cli/report.h"
#include "documents/documents.h"

namespace moestro {
namespace {

// The program's own page, its commands', and its completions, in a folder of its own.
Status WriteDocuments(const ProgramText& program, const std::string& date,
                      const std::string& folder) {
  std::error_code why;
  std::filesystem::create_directories(folder, why);
  if (why) return Fail(Errc::kIo, "cannot make the folder {}: {}", folder, why.message());
  const std::string stem = folder + "/" + program.name;
  TRY_STATUS(WriteFile(stem + ".1", ProgramManPage(program, date)));
  for (const CommandText& command : program.commands) {
    TRY_STATUS(WriteFile(Format("{}/{}-{}.1", folder, program.starter(), command.name),
                         CommandManPage(program, command, date)));
  }
  TRY_STATUS(WriteFile(stem + ".bash", BashCompletion(program)));
  TRY_STATUS(WriteFile(stem + ".zsh", ZshCompletion(program)));
  return WriteFile(stem + ".fish", FishCompletion(program));
}

Status WriteBoth(const std::string& version, const std::string& date, const std::string& folder) {
  const BothPrograms both = DescribeBoth(version);
  TRY_STATUS(WriteDocuments(both.lab, date, folder + "/lab"));
  return WriteDocuments(both.user, date, folder + "/user");
}

int Main(std::span<char*> argv) {
  if (argv.size() != 4) {
    std::fputs("usage: moestro_write_documents VERSION DATE FOLDER\n", stderr);
    return 2;
  }
  return ExitCode(WriteBoth(argv[1], argv[2], argv[3]));
}

}  // namespace
}  // namespace moestro

int main(int argc, char** argv) {
  return moestro::Caught([&] { return moestro::Main({argv, static_cast<size_t>(argc)}); },
                         [](std::string_view why) {
                           std::fprintf(stderr, "%s\n", std::string(why).c_str());
                           return 1;
                         });
}
