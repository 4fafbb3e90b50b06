// SPDX-License-Identifier: MIT
// The start of a program, the same for both.
#pragma once

#include <functional>

namespace moestro {

// Starts the program once more if OpenMP has no settings yet, which it reads before main(); then
// makes a closed pipe and a limit on the size of files errors of write(), not the end of the
// process. REQUIRES: a process with one thread, and no file that the program has opened.
void SetUpProcess(char** argv);

// The result of `main`, or 1 and a line on standard error if it throws.
int RunProgram(const std::function<int()>& main);

}  // namespace moestro
