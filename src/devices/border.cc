// SPDX-License-Identifier: MIT
#include "devices/border.h"

#include <utility>

#include "device/backend_calls.h"

namespace moestro {

Status Border::Cross(const ComputeDevice& device) {
  const std::vector<Write> writes = std::exchange(writes_, {});
  const std::vector<Read> reads = std::exchange(reads_, {});
  for (const Write& write : writes) TRY_STATUS(device.QueueWrite(write.to, write.from));
  for (const Read& read : reads) TRY_STATUS(device.QueueRead(read.from, read.to));
  return reads.empty() ? Status() : device.Finish();
}

}  // namespace moestro
