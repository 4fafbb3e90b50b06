// SPDX-License-Identifier: MIT
#include "device/cpu_device.h"

#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <utility>

#include "base/format.h"
#include "base/system_limits.h"
#include "device/backends.h"

namespace moestro {
namespace {

// The lowest CPU number that shares a core with `cpu`: one name per core. Without sysfs every CPU
// counts as a core of its own.
int CoreOf(const std::string& root, int cpu) {
  std::ifstream file(
      Format("{}/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", root, cpu));
  int first = cpu;
  file >> first;
  return file.fail() ? cpu : first;
}

// A symbol of the shared object that holds `address`, without taking a reference on it: ggml never
// unloads a registered backend.
void* SymbolBeside(const void* address, const char* symbol) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return nullptr;
  void* object = dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
  if (object == nullptr) return nullptr;
  void* found = dlsym(object, symbol);
  dlclose(object);
  return found;
}

}  // namespace

uint32_t PhysicalCores(const std::string& root) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return 1;
  std::set<int> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) cores.insert(CoreOf(root, cpu));
  }
  const double most = std::min(static_cast<double>(cores.size()), ProcessorQuota(root));
  return std::max(static_cast<uint32_t>(most + 0.5), 1U);
}

Result<CpuTraits> CpuTraits::Load() {
  LoadCpuBackend();
  ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  if (device == nullptr) {
    return Fail(
        Errc::kUnsupported,
        "ggml found no CPU backend; install ggml's backend package or set GGML_BACKEND_PATH");
  }
  // Starting a backend fills the lookup tables that the per-type functions read.
  const ggml_backend_ptr backend(ggml_backend_dev_init(device, nullptr));
  if (!backend) return Fail(Errc::kUnsupported, "ggml cannot start its CPU backend");
  // Any function of the plug-in tells which file it came from.
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
  ggml_backend_ptr backend(ggml_backend_dev_init(device, nullptr));
  if (!backend) return Fail(Errc::kUnsupported, "ggml cannot start its CPU backend");
  const uint32_t team = threads > 0 ? threads : PhysicalCores();
  auto* set_threads =
      reinterpret_cast<ggml_backend_set_n_threads_t>(ggml_backend_reg_get_proc_address(
          ggml_backend_dev_backend_reg(device), "ggml_backend_set_n_threads"));
  if (set_threads == nullptr) {
    return Fail(Errc::kUnsupported, "ggml's CPU backend does not let its threads be set");
  }
  set_threads(backend.get(), static_cast<int>(team));
  return CpuDevice(std::move(backend), traits, team);
}

std::string CpuDevice::description() const {
  return Format("{}, {} threads", ggml_backend_dev_description(handle()), threads_);
}

Status ComputeOn(ggml_backend_t backend, ggml_cgraph* graph) {
  const ggml_status status = ggml_backend_graph_compute(backend, graph);
  if (status == GGML_STATUS_SUCCESS) return {};
  return Fail(Errc::kNoMemory, "ggml could not run a graph: {}", ggml_status_to_string(status));
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
  // The backend judges by where the weight lives; an empty buffer is enough to tell it.
  const ggml_backend_buffer_ptr buffer(ggml_backend_buft_alloc_buffer(buffer_type, 0));
  weight->buffer = buffer.get();
  return ggml_backend_dev_supports_op(handle(), product);
}

}  // namespace moestro
