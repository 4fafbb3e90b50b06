// SPDX-License-Identifier: MIT
#include "trace/trace_machine.h"

#include <algorithm>

#include "base/text.h"

namespace moestro {
namespace {

constexpr uint64_t kCostsBytes = 9 * sizeof(double) + 2 * sizeof(uint32_t);

// Limits for one matrix and for slots, so that sums over all experts do not overflow.
constexpr uint64_t kMostMatrixBytes = uint64_t{1} << 32;
constexpr uint64_t kMostSlots = uint64_t{1} << 32;

uint64_t IndexBytes(uint32_t n_pools, const MoeShape& shape) {
  return n_pools > 1 ? uint64_t{shape.n_layer} * shape.n_expert * sizeof(uint16_t) : 0;
}

// Bytes of the pools, which follow their number.
uint64_t PoolsBytes(uint32_t n_pools, const MoeShape& shape) {
  return n_pools * (kMatrices + 1) * sizeof(uint64_t) + IndexBytes(n_pools, shape);
}

Result<ExpertPools> DecodePools(const std::string& bytes, uint32_t n_pools, const MoeShape& shape) {
  Decoder decoder(bytes);
  ExpertPools pools;
  for (uint32_t p = 0; p < n_pools; ++p) {
    ExpertPools::Pool& pool = pools.pools.emplace_back();
    for (uint64_t& matrix : pool.matrix_bytes) {
      matrix = decoder.Take<uint64_t>();
      if (matrix > kMostMatrixBytes) {
        return Fail(Errc::kInvalidFile, "a matrix of {} bytes in pool {}", matrix, p);
      }
    }
    if (pool.expert_bytes() == 0) {
      return Fail(Errc::kInvalidFile, "experts of no bytes in pool {}", p);
    }
    pool.slots = decoder.Take<uint64_t>();
    if (pool.slots > kMostSlots) {
      return Fail(Errc::kInvalidFile, "{} slots in pool {}", pool.slots, p);
    }
  }
  pools.pool_of.resize(IndexBytes(n_pools, shape) / sizeof(uint16_t));
  for (uint16_t& pool : pools.pool_of) {
    pool = decoder.Take<uint16_t>();
    if (pool >= n_pools) {
      return Fail(Errc::kInvalidFile, "an expert in pool {} of {}", pool, n_pools);
    }
  }
  return pools;
}

Result<MachineCosts> DecodeCosts(const std::string& bytes) {
  Decoder decoder(bytes);
  MachineCosts costs;
  for (double* const value :
       {&costs.compute, &costs.expert_share, &costs.first_use, &costs.second_use, &costs.bandwidth,
        &costs.read_latency, &costs.layer_wait, &costs.compute_beside, &costs.read_beside}) {
    *value = decoder.Take<double>();
  }
  costs.io_depth = decoder.Take<uint32_t>();
  costs.max_read = decoder.Take<uint32_t>();
  if (costs.is_sane()) return costs;
  return Fail(Errc::kInvalidFile, "costs that nobody could have measured");
}

}  // namespace

Status CheckPools(const ExpertPools& pools, const MoeShape& shape) {
  const size_t n = pools.pools.size();
  if (n > kMostPools) {
    return Fail(Errc::kInvalidRequest, "a trace cannot have {} pools of slots, only 0 to {}", n,
                kMostPools);
  }
  const size_t indices = n > 1 ? size_t{shape.n_layer} * shape.n_expert : 0;
  if (pools.pool_of.size() != indices ||
      std::ranges::any_of(pools.pool_of, [n](uint16_t pool) { return pool >= n; })) {
    return Fail(Errc::kInvalidRequest, "a trace of {} pools does not say where experts go", n);
  }
  return {};
}

std::string EncodePools(const ExpertPools& pools) {
  std::string bytes;
  AppendNumber(bytes, static_cast<uint32_t>(pools.pools.size()));
  for (const ExpertPools::Pool& pool : pools.pools) {
    for (const uint64_t matrix : pool.matrix_bytes) AppendNumber(bytes, matrix);
    AppendNumber(bytes, pool.slots);
  }
  for (const uint16_t pool : pools.pool_of) AppendNumber(bytes, pool);
  return bytes;
}

std::string EncodeCosts(const MachineCosts& costs) {
  std::string bytes;
  for (const double value :
       {costs.compute, costs.expert_share, costs.first_use, costs.second_use, costs.bandwidth,
        costs.read_latency, costs.layer_wait, costs.compute_beside, costs.read_beside}) {
    AppendNumber(bytes, value);
  }
  AppendNumber(bytes, costs.io_depth);
  AppendNumber(bytes, costs.max_read);
  return bytes;
}

Result<RecordedMachine> ReadMachine(const InputFile& source, uint64_t at, MachineFields parts,
                                    const MoeShape& shape) {
  RecordedMachine machine{.end = at};
  const auto take = [&](uint64_t n) -> Result<std::string> {
    if (machine.end > source.size() || n > source.size() - machine.end) {
      return source.CutShort("pools or costs before its tokens");
    }
    TRY(std::string bytes, source.Read(machine.end, static_cast<size_t>(n)));
    machine.end += n;
    return bytes;
  };
  if (parts.pools) {
    TRY(const std::string count, take(sizeof(uint32_t)));
    const auto n_pools = Decoder(count).Take<uint32_t>();
    if (n_pools == 0 || n_pools > kMostPools) {
      return source.Damaged(Format("{} pools of slots", n_pools));
    }
    TRY(const std::string bytes, take(PoolsBytes(n_pools, shape)));
    Result<ExpertPools> pools = DecodePools(bytes, n_pools, shape);
    if (!pools) return source.Damaged(pools.error().message);
    machine.pools = *std::move(pools);
  }
  if (parts.costs) {
    TRY(const std::string bytes, take(kCostsBytes));
    const Result<MachineCosts> costs = DecodeCosts(bytes);
    if (!costs) return source.Damaged(costs.error().message);
    machine.costs = *costs;
  }
  return machine;
}

}  // namespace moestro
