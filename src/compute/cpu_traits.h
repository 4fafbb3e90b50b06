// SPDX-License-Identifier: MIT
// ggml's per-type functions of the CPU variant that it picked for this machine. They live in a
// plug-in that is loaded at run time and hands out no address for them, so they are looked up by
// symbol in the plug-in's own file; ggml-cpu.h declares the symbol, plug-ins do not promise it.
#pragma once

#include <ggml-cpu.h>
#include <ggml.h>

#include <optional>

#include "base/result.h"

namespace moestro {

class CpuTraits {
 public:
  // Loads ggml's backends if nobody has. kUnsupported without a CPU backend. A plug-in without the
  // symbol is no error: every Of() is then nullptr.
  static Result<CpuTraits> Load();
  // As if the plug-in lacked the symbol.
  static CpuTraits Missing() { return CpuTraits(nullptr); }

  bool found() const { return get_ != nullptr; }
  // Lives as long as the process; nullptr when the symbol is missing. Members may be null.
  const ggml_type_traits_cpu* Of(ggml_type type) const {
    return get_ != nullptr ? get_(type) : nullptr;
  }

 private:
  using Get = const ggml_type_traits_cpu* (*)(ggml_type);
  explicit CpuTraits(Get get) : get_(get) {}

  Get get_;
};

}  // namespace moestro
