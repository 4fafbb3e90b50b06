// SPDX-License-Identifier: MIT
#include "cli/program.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/caught.h"
#include "base/format.h"
#include "base/visible.h"

namespace moestro {
namespace {

// Spin count of OpenMP threads between two pieces of work before they sleep: 30 to 100 us, as our
// own threads do (base/spin.h). libgomp's default holds a core for 12 ms, during which threads that
// read from disk, and other programs, starve; sleeping at once makes small graphs several times
// slower. Beside one busy program per core, 20000 gave 13 to 50 % of the quiet speed and 2000 gives
// 35 to 55; quiet, they are alike (Qwen3-30B's shape, bench).
constexpr const char* kSpinCount = "2000";
constexpr const char* kSpinVariable = "GOMP_SPINCOUNT";
constexpr const char* kAgainVariable = "MOESTRO_STARTED_AGAIN";

// libgomp reads its settings before main(), so the program has to start itself once more.
void SetUpOpenMp(char** argv) {
  if (std::getenv(kSpinVariable) != nullptr || std::getenv(kAgainVariable) != nullptr) return;
  setenv(kSpinVariable, kSpinCount, 1);
  setenv(kAgainVariable, "1", 1);
  // Starts by the program's own path, so that the process keeps its name. Where both calls fail,
  // the program only runs slower.
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) execv(self.c_str(), argv);
  execv("/proc/self/exe", argv);
}

}  // namespace

void SetUpProcess(char** argv) {
  SetUpOpenMp(argv);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
}

int RunProgram(const std::function<int()>& main) {
  return Caught(main, [](std::string_view why) {
    PrintOnStderr(Format("moestro: {}\n", why));
    return 1;
  });
}

}  // namespace moestro
