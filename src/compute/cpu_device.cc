// SPDX-License-Identifier: MIT
#include "compute/cpu_device.h"

#include <dlfcn.h>
#include <ggml-cpp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include "base/system_limits.h"
#include "base/text.h"
#include "compute/backends.h"

namespace moestro {
namespace {

// The file of the shared object that holds `address`; empty: not known.
std::string ObjectOf(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "";
  return info.dli_fname;
}

// A symbol of the shared object that holds `address`, without taking a reference on the object:
// ggml never unloads a registered backend.
void* SymbolBeside(const void* address, const char* symbol) {
  const std::string file = ObjectOf(address);
  if (file.empty()) return nullptr;
  void* object = dlopen(file.c_str(), RTLD_NOLOAD | RTLD_LAZY);
  if (object == nullptr) return nullptr;
  void* found = dlsym(object, symbol);
  dlclose(object);
  return found;
}

}  // namespace

Result<CpuTraits> CpuTraits::Load() {
  LoadCpuBackend();
  ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  if (device == nullptr) {
    return Fail(
        Errc::kUnsupported,
        "ggml found no CPU backend; install ggml's backend package or set GGML_BACKEND_PATH");
  }
  // Starting a backend fills the lookup tables that the per-type functions read.
  const Result<BackendPtr> backend = StartBackend(ggml_backend_dev_name(device));
  if (!backend) return Fail(Errc::kUnsupported, "ggml cannot start its CPU backend");
  // The address of any function of the plug-in identifies the plug-in's file.
  const void* inside = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device),
                                                         "ggml_backend_set_n_threads");
  if (inside == nullptr) return Missing();
  return CpuTraits(reinterpret_cast<Get>(SymbolBeside(inside, "ggml_get_type_traits_cpu")));
}

Result<CpuDevice> CpuDevice::Open(uint32_t threads) {
  if (threads > GGML_MAX_N_THREADS) {
    return Fail(Errc::kUsage,
                "{} threads are too many: ggml takes at most {}, and more than the {} cores that "
                "this process may use make it slower; set --threads",
                threads, GGML_MAX_N_THREADS, PhysicalCores());
  }
  TRY(const CpuTraits traits, CpuTraits::Load());
  ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  Result<BackendPtr> backend = StartBackend(ggml_backend_dev_name(device));
  if (!backend) return Fail(Errc::kUnsupported, "ggml cannot start its CPU backend");
  auto* set_threads =
      reinterpret_cast<ggml_backend_set_n_threads_t>(ggml_backend_reg_get_proc_address(
          ggml_backend_dev_backend_reg(device), "ggml_backend_set_n_threads"));
  if (set_threads == nullptr) {
    return Fail(Errc::kUnsupported, "ggml's CPU backend does not let its threads be set");
  }
  CpuDevice opened(*std::move(backend), traits, set_threads);
  opened.SetThreads(threads > 0 ? threads
                                : std::min<uint32_t>(PhysicalCores(), GGML_MAX_N_THREADS));
  return opened;
}

void CpuDevice::SetThreads(uint32_t threads) {
  CHECK(threads > 0 && threads <= GGML_MAX_N_THREADS);
  set_threads_(backend(), static_cast<int>(threads));
  threads_ = threads;
}

std::string CpuDevice::plug_in() const {
  const void* inside = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(handle()),
                                                         "ggml_backend_set_n_threads");
  std::string name = std::filesystem::path(ObjectOf(inside)).stem().string();
  return name.starts_with("lib") ? name.substr(3) : name;
}

CpuDevice::CpuDevice(BackendPtr backend, CpuTraits traits, ggml_backend_set_n_threads_t set_threads)
    : backend_(std::move(backend)),
      traits_(traits),
      set_threads_(set_threads),
      set_abort_callback_(
          reinterpret_cast<ggml_backend_set_abort_callback_t>(ggml_backend_reg_get_proc_address(
              ggml_backend_dev_backend_reg(handle()), "ggml_backend_set_abort_callback"))) {}

Status CpuDevice::Compute(ggml_cgraph* graph, StopSignal& stop) {
  if (set_abort_callback_ == nullptr) return Compute(graph);
  const auto look = [](void* signal) { return static_cast<StopSignal*>(signal)->is_requested(); };
  set_abort_callback_(backend(), look, &stop);
  Status done = Compute(graph);
  set_abort_callback_(backend(), nullptr, nullptr);
  return done;
}

std::string CpuDevice::description() const {
  return Format("{}, {} threads", ggml_backend_dev_description(handle()), threads_);
}

std::vector<ggml_backend_buffer_type_t> CpuDevice::repacking_buffer_types() const {
  auto* get =
      reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(ggml_backend_reg_get_proc_address(
          ggml_backend_dev_backend_reg(handle()), "ggml_backend_dev_get_extra_bufts"));
  std::vector<ggml_backend_buffer_type_t> types;
  if (get == nullptr) return types;
  for (ggml_backend_buffer_type_t* type = get(handle()); type != nullptr && *type != nullptr;
       ++type) {
    types.push_back(*type);
  }
  return types;
}

bool CpuDevice::CanMultiply(ggml_type type, int64_t n_in, int64_t n_out,
                            ggml_backend_buffer_type_t buffer_type) const {
  const ggml_init_params params{
      .mem_size = 8 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true};
  const ggml_context_ptr context(ggml_init(params));
  ggml_tensor* weight = ggml_new_tensor_2d(context.get(), type, n_in, n_out);
  ggml_tensor* product = ggml_mul_mat(context.get(), weight,
                                      ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, n_in, 1));
  // The backend judges by the type of the weight's buffer; an empty buffer is enough.
  const Result<BufferPtr> buffer = AllocateBuffer(buffer_type, 0);
  if (!buffer) return false;
  weight->buffer = buffer->get();
  return Computes(handle(), product);
}

namespace {

constexpr size_t kLine = 64;
// Far enough for DRAM latency at one core's share of the bandwidth, near enough for L1.
constexpr size_t kPrefetchDistance = 6144;

void PrefetchRange(const std::byte* from, const std::byte* to) {
  for (; from < to; from += kLine) __builtin_prefetch(from);
}

void QuantiseWithGgml(const ExpertKernel& self, const float* from, std::byte* to, int64_t n) {
  self.from_float(from, to, n);
}

void CopyFloats(const ExpertKernel&, const float* from, std::byte* to, int64_t n) {
  std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
}

// Multiplies one row with all tokens before the next row, so that a row comes from DRAM once. The
// prefetch runs a fixed distance ahead, because ggml's dot products prefetch nothing beyond the row
// that they read.
void MultiplyWithGgml(const ExpertKernel& self, const ExpertKernel::Call& call) {
  const std::byte* row = call.rows;
  const std::byte* const end = row + static_cast<size_t>(call.n_rows) * call.row_bytes;
  const std::byte* asked = row;
  for (int64_t r = 0; r < call.n_rows; ++r, row += call.row_bytes) {
    const std::byte* ask = std::min(row + call.row_bytes + kPrefetchDistance, end);
    PrefetchRange(asked, ask);
    asked = std::max(asked, ask);
    if (r + 1 == call.n_rows) {
      PrefetchRange(call.next, call.next + std::min(call.next_bytes, kPrefetchDistance));
    }
    for (int64_t t = 0; t < call.n_tokens; ++t) {
      self.vec_dot(static_cast<int>(call.n_in), call.out[t] + r, 0, row, 0, call.activations[t], 0,
                   1);
    }
  }
}

constexpr int64_t kChunk = 256;    // a multiple of every type's block
constexpr int64_t kTokenTile = 8;  // tokens that share a dequantised chunk

// Computes out[t][r] of one row for at most kTokenTile tokens from `first` on.
void DequantisedRow(const ExpertKernel& self, const ExpertKernel::Call& call, int64_t r,
                    int64_t first) {
  const ggml_type_traits& type = *ggml_get_type_traits(self.weight_type);
  const std::byte* row = call.rows + static_cast<size_t>(r) * call.row_bytes;
  const int64_t n_tokens = std::min(kTokenTile, call.n_tokens - first);
  std::array<float, kChunk> weights;
  std::array<double, kTokenTile> sums{};
  for (int64_t at = 0; at < call.n_in; at += kChunk) {
    const int64_t n = std::min(kChunk, call.n_in - at);
    if (type.to_float != nullptr) {
      type.to_float(row + ggml_row_size(self.weight_type, at), weights.data(), n);
    } else {
      std::memcpy(weights.data(), row + static_cast<size_t>(at) * sizeof(float),
                  static_cast<size_t>(n) * sizeof(float));
    }
    for (int64_t t = 0; t < n_tokens; ++t) {
      const auto* x = reinterpret_cast<const float*>(call.activations[first + t]) + at;
      double sum = 0.0;
      for (int64_t i = 0; i < n; ++i) sum += double{weights[static_cast<size_t>(i)]} * x[i];
      sums[static_cast<size_t>(t)] += sum;
    }
  }
  for (int64_t t = 0; t < n_tokens; ++t) {
    call.out[first + t][r] = static_cast<float>(sums[static_cast<size_t>(t)]);
  }
}

void MultiplyDequantised(const ExpertKernel& self, const ExpertKernel::Call& call) {
  for (int64_t r = 0; r < call.n_rows; ++r) {
    for (int64_t t = 0; t < call.n_tokens; t += kTokenTile) DequantisedRow(self, call, r, t);
  }
}

}  // namespace

std::optional<ExpertKernel> GenericKernel(ggml_type type, const CpuTraits& traits) {
  const ggml_type_traits_cpu* weights = traits.Of(type);
  if (weights == nullptr || weights->vec_dot == nullptr) return std::nullopt;
  const ggml_type activation_type = weights->vec_dot_type;
  const ggml_type_traits_cpu* activations = traits.Of(activation_type);
  const bool floats = activation_type == GGML_TYPE_F32;
  if (!floats && activations->from_float == nullptr) return std::nullopt;
  ExpertKernel kernel;
  kernel.weight_type = type;
  kernel.activation_type = activation_type;
  kernel.name = "ggml";
  kernel.quantise = floats ? CopyFloats : QuantiseWithGgml;
  kernel.multiply = MultiplyWithGgml;
  kernel.activation_block = ggml_blck_size(activation_type);
  kernel.activation_block_bytes = ggml_type_size(activation_type);
  kernel.from_float = activations->from_float;
  kernel.vec_dot = weights->vec_dot;
  return kernel;
}

std::optional<ExpertKernel> DequantisingKernel(ggml_type type) {
  const bool floats = type == GGML_TYPE_F32;
  if (!floats && ggml_get_type_traits(type)->to_float == nullptr) return std::nullopt;
  ExpertKernel kernel;
  kernel.weight_type = type;
  kernel.activation_type = GGML_TYPE_F32;
  kernel.name = "dequantise";
  kernel.quantise = CopyFloats;
  kernel.multiply = MultiplyDequantised;
  kernel.activation_block_bytes = sizeof(float);
  return kernel;
}

}  // namespace moestro
