// SPDX-License-Identifier: MIT
// moestro_local_hub OWNER/REPO FILE: the tests' hub with one repository of one file. Prints its
// address, HF_ENDPOINT for the program, and serves until its standard input ends.
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>

#include "tests/support/hub_server_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

int Main(std::span<char*> argv) {
  if (argv.size() != 3) {
    std::fputs("usage: moestro_local_hub OWNER/REPO FILE\n", stderr);
    return 2;
  }
  const std::filesystem::path path = argv[2];
  const std::string content = ReadAll(path);
  if (content.empty()) {
    std::fprintf(stderr, "moestro_local_hub: cannot read %s\n", path.c_str());
    return 1;
  }
  HubServer server;
  server.Add(argv[1], std::string(40, 'a'), path.filename(), content);
  std::printf("%s\n", server.endpoint().c_str());
  std::fflush(stdout);
  std::array<char, 256> unused{};
  while (read(STDIN_FILENO, unused.data(), unused.size()) > 0) {
  }
  return 0;
}

}  // namespace
}  // namespace moestro

int main(int argc, char** argv) { return moestro::Main({argv, static_cast<size_t>(argc)}); }
