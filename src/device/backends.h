// SPDX-License-Identifier: MIT
// ggml's plug-ins, loaded as far as they are needed: a GPU's driver takes a hundred megabytes of a
// budget that experts may need. ggml's own "load all" knows no less. Both are quiet:
// plug-ins tell about themselves, only trouble is worth a line.
//
// Thread rule: one thread at a time.
#pragma once

namespace moestro {

// The CPU's plug-in that is best on this machine, if no CPU backend is loaded. Where ggml's
// plug-ins are not where they were at build time, all that ggml finds.
void LoadCpuBackend();

// The CPU's, and those of GPUs that ggml has here.
void LoadDeviceBackends();

}  // namespace moestro
