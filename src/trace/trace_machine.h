// SPDX-License-Identifier: MIT
// The parts of a trace's header about the engine that recorded it: its pools of slots and its costs
// of decode (docs/trace-format.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/binary_file.h"
#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/machine.h"
#include "core/run_identity.h"

namespace moestro {

inline constexpr uint32_t kMostPools = 1024;

// kInvalidRequest: more pools than kMostPools, or an expert without a pool.
Status CheckPools(const ExpertPools& pools, const MoeShape& shape);

std::string EncodePools(const ExpertPools& pools);
std::string EncodeCosts(const MachineCosts& costs);

struct MachineFields {
  bool pools = false;
  bool costs = false;
};
struct RecordedMachine {
  ExpertPools pools = {};
  std::optional<MachineCosts> costs = {};
  uint64_t end = 0;  // byte behind both
};
// Reads the parts that `parts` names, from byte `at` on. kInvalidFile: the file ends before their
// end, a size is 0 or past the size of a file, an expert names a pool that does not exist, costs
// cannot have been measured. REQUIRES: a shape within Trace's limits.
Result<RecordedMachine> ReadMachine(const InputFile& source, uint64_t at, MachineFields parts,
                                    const MoeShape& shape);

}  // namespace moestro
