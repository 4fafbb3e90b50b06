// SPDX-License-Identifier: MIT
#include "hosted/kernel_products.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "base/result.h"
#include "base/wait_word.h"

namespace moestro {
namespace {

constexpr int64_t kTile = ExpertKernel::kInterleavedRows;
// Rows of activations that a thread quantises and multiplies at a time.
constexpr int64_t kGroup = 64;
constexpr std::align_val_t kAlignment{64};

// A row of activations and of the result, by its three outer dimensions.
struct RowAt {
  int64_t i1 = 0;
  int64_t i2 = 0;
  int64_t i3 = 0;
};

}  // namespace

// The product of one node: kernel, shape, and the matrices to multiply with.
struct KernelProducts::Job {
  struct Part {
    const std::byte* rows = nullptr;
    std::vector<RowAt> of = {};    // rows of activations for this matrix; empty: all of the node's
    const Lease* lease = nullptr;  // of an expert that may still be in reading; null: dense
  };
  const ExpertKernel* kernel = nullptr;
  Scratch* scratch = nullptr;
  int64_t n_in = 0;
  int64_t n_out = 0;
  size_t row_bytes = 0;
  bool is_interleaved = false;
  Matrix matrix = Matrix::kGate;  // for an expert's product
  std::vector<Part> parts = {};
  // The number of parts that have landed; kEnded: stop computing. Written by the engine thread.
  std::unique_ptr<WaitWord> landed = std::make_unique<WaitWord>();
  static constexpr uint32_t kEnded = UINT32_MAX;

  bool WaitFor(size_t part, bool is_engine_thread);
};

// Quantised activations, kGroup rows for each thread; and the reads.
struct KernelProducts::Scratch {
  Reads reads = {};
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete[](bytes, kAlignment); }
  };
  uint32_t threads = 1;
  size_t row_bytes = 0;  // the most of any job
  std::unique_ptr<std::byte[], Free> bytes = {};

  void Allocate() {
    const size_t size = std::max<size_t>(1, threads * kGroup * row_bytes);
    bytes.reset(static_cast<std::byte*>(::operator new[](size, kAlignment)));
  }
  std::byte* of(int thread) const {
    return bytes.get() + static_cast<size_t>(thread) * kGroup * row_bytes;
  }
};

namespace {

// Multiplies a thread's share [begin, end) of a matrix's rows with up to kGroup rows.
struct RowShare {
  const ggml_tensor* result;
  int64_t begin;
  int64_t end;
  std::byte* quantised;
  const std::byte* next;  // bytes that the thread reads next; nullptr: unknown
};

const std::byte* ActivationsAt(const ggml_tensor& x, const RowAt& at) {
  // Experts may share one row of activations.
  return static_cast<const std::byte*>(x.data) + static_cast<size_t>(at.i1 % x.ne[1]) * x.nb[1] +
         static_cast<size_t>(at.i2) * x.nb[2] + static_cast<size_t>(at.i3) * x.nb[3];
}

std::byte* ResultAt(const ggml_tensor& result, const RowAt& at) {
  return static_cast<std::byte*>(result.data) + static_cast<size_t>(at.i1) * result.nb[1] +
         static_cast<size_t>(at.i2) * result.nb[2] + static_cast<size_t>(at.i3) * result.nb[3];
}

template <class Job>
void MultiplyGroup(const Job& job, const std::byte* rows, const RowShare& share,
                   std::span<const RowAt> group) {
  const ggml_tensor& x = *share.result->src[1];
  const size_t bytes = job.kernel->activation_bytes(job.n_in);
  std::array<const std::byte*, kGroup> activations{};
  std::array<float*, kGroup> out{};
  const std::byte* before = nullptr;
  std::byte* to = share.quantised;
  for (size_t i = 0; i < group.size(); ++i) {
    const std::byte* const from = ActivationsAt(x, group[i]);
    if (from != before) {
      to = share.quantised + i * bytes;
      job.kernel->quantise(*job.kernel, reinterpret_cast<const float*>(from), to, job.n_in);
    }
    before = from;
    activations[i] = to;
    out[i] = reinterpret_cast<float*>(ResultAt(*share.result, group[i])) + share.begin;
  }
  job.kernel->multiply(*job.kernel,
                       {.rows = rows + static_cast<size_t>(share.begin) * job.row_bytes,
                        .row_bytes = job.row_bytes,
                        .n_in = job.n_in,
                        .n_rows = share.end - share.begin,
                        .activations = activations.data(),
                        .out = out.data(),
                        .n_tokens = static_cast<int64_t>(group.size()),
                        .next = share.next,
                        .next_bytes = share.next != nullptr ? job.row_bytes * size_t{kTile} : 0,
                        .is_interleaved = job.is_interleaved});
}

// kUnsupported unless the product's rows are plain floats, as the kernels read and write them.
Status CheckRows(const ggml_tensor& product) {
  const ggml_tensor& x = *product.src[1];
  const bool is_known = product.src[0]->view_src == nullptr && x.type == GGML_TYPE_F32 &&
                        x.nb[0] == sizeof(float) && product.type == GGML_TYPE_F32 &&
                        product.nb[0] == sizeof(float);
  if (is_known) return {};
  return Fail(Errc::kUnsupported, "{}: libllama multiplies it otherwise than it did before",
              static_cast<const char*>(product.src[0]->name));
}

// The node's n-th row.
RowAt NthRow(const ggml_tensor& result, int64_t n) {
  return {.i1 = n % result.ne[1],
          .i2 = n / result.ne[1] % result.ne[2],
          .i3 = n / result.ne[1] / result.ne[2]};
}

}  // namespace

// False: the operation ends here; later parts are not computed.
bool KernelProducts::Job::WaitFor(size_t part, bool is_engine_thread) {
  if (!is_engine_thread) {
    landed->WaitUntil([part](uint32_t n) { return n > part; });
    return landed->load() != kEnded;
  }
  const Reads& reads = scratch->reads;
  if (reads.advance) reads.advance();
  const uint32_t before = landed->load();
  uint32_t n = before;
  const auto move_on = [&] {
    while (n < parts.size() && (parts[n].lease == nullptr || parts[n].lease->landed(matrix))) ++n;
    return n > part;
  };
  bool goes_on = true;
  while (!move_on() && (goes_on = !reads.is_ended())) reads.wait_briefly();
  if (!goes_on) n = kEnded;
  if (n == before) return true;
  landed->Store(n);
  return goes_on;
}

// Each thread takes a share of the rows of every part, in whole tiles, and quantises the
// activations for itself: threads wait for bytes within a node, and not for each other.
void KernelProducts::Run(ggml_tensor* result, int thread, int n_threads, void* userdata) {
  Job& job = *static_cast<Job*>(userdata);
  const int64_t tiles = (job.n_out + kTile - 1) / kTile;
  RowShare share{.result = result,
                 .begin = tiles * thread / n_threads * kTile,
                 .end = std::min(tiles * (thread + 1) / n_threads * kTile, job.n_out),
                 .quantised = job.scratch->of(thread),
                 .next = nullptr};
  const bool has_share = share.begin < share.end;
  if (!has_share && thread != 0) return;
  for (size_t p = 0; p < job.parts.size(); ++p) {
    if (!job.WaitFor(p, thread == 0)) return;
    if (!has_share) continue;
    const Job::Part& part = job.parts[p];
    share.next = p + 1 < job.parts.size()
                     ? job.parts[p + 1].rows + static_cast<size_t>(share.begin) * job.row_bytes
                     : nullptr;
    const int64_t all = part.of.empty() ? ggml_nrows(result) : static_cast<int64_t>(part.of.size());
    std::array<RowAt, kGroup> group;
    for (int64_t first = 0; first < all; first += kGroup) {
      const int64_t n = std::min(kGroup, all - first);
      for (int64_t i = 0; i < n; ++i) {
        const int64_t row = first + i;
        group[static_cast<size_t>(i)] =
            part.of.empty() ? NthRow(*result, row) : part.of[static_cast<size_t>(row)];
      }
      MultiplyGroup(job, part.rows, share, std::span(group).first(static_cast<size_t>(n)));
    }
  }
}

const ExpertKernel* KernelProducts::KernelFor(int type) {
  const auto [known, is_new] = kernels_.try_emplace(type);
  if (is_new) {
    const Result<ExpertKernel> found = FindExpertKernel(static_cast<ggml_type>(type));
    if (found && found->interleave != nullptr) known->second = *found;
  }
  return known->second ? &*known->second : nullptr;
}

KernelProducts::KernelProducts(const LearnedGraph& graph, uint32_t threads)
    : graph_(graph), scratch_(std::make_unique<Scratch>()) {
  scratch_->threads = threads;
  const auto job_for = [this](const TensorInfo& info) -> Job* {
    const ExpertKernel* const kernel = KernelFor(info.type);
    if (kernel == nullptr) return nullptr;
    const auto n_in = static_cast<int64_t>(info.ne[0]);
    scratch_->row_bytes = std::max(scratch_->row_bytes, kernel->activation_bytes(n_in));
    return &jobs_.emplace_back(
        Job{.kernel = kernel,
            .scratch = scratch_.get(),
            .n_in = n_in,
            .n_out = static_cast<int64_t>(info.ne[1]),
            .row_bytes = ggml_row_size(static_cast<ggml_type>(info.type), n_in)});
  };
  for (const ExpertGroup& group : graph_.groups) {
    std::vector<Job*>& its = groups_.emplace_back();
    for (const MappedTensor& matrix : group.matrices) its.push_back(job_for(*matrix.info));
    if (std::ranges::contains(its, nullptr)) its.clear();
  }
  for (const MappedTensor& tensor : graph_.dense) {
    if (!tensor.is_multiplied) continue;
    if (Job* const job = job_for(*tensor.info)) dense_[tensor.data] = job;
  }
  scratch_->Allocate();
}

KernelProducts::~KernelProducts() = default;

void KernelProducts::SetReads(Reads reads) { scratch_->reads = std::move(reads); }

void KernelProducts::LayOutDense(size_t part, size_t parts) {
  std::vector<std::byte> scratch;
  for (size_t i = part; i < graph_.dense.size(); i += parts) {
    const MappedTensor& tensor = graph_.dense[i];
    const auto found = dense_.find(tensor.data);
    if (found == dense_.end()) continue;
    Job& job = *found->second;
    scratch.resize(std::max(scratch.size(), static_cast<size_t>(kTile) * job.row_bytes));
    job.kernel->interleave({.rows = tensor.data, .row_bytes = job.row_bytes, .n_rows = job.n_out},
                           scratch.data());
    job.is_interleaved = true;
    job.parts = {{.rows = tensor.data}};
    job.landed->Store(1);
  }
}

void KernelProducts::Choose(uint32_t group, const Routing& routing, const LeaseStream& leases) {
  std::vector<std::vector<RowAt>> rows_of(graph_.groups[group].n_expert);
  for (uint32_t token = 0; token < routing.n_tokens; ++token) {
    const std::span<const ExpertId> chosen = routing.experts_of(token);
    for (size_t k = 0; k < chosen.size(); ++k) {
      rows_of[chosen[k].value].push_back({.i1 = static_cast<int64_t>(k), .i2 = token});
    }
  }
  for (size_t m = 0; m < groups_[group].size(); ++m) {
    Job& job = *groups_[group][m];
    job.parts.clear();
    job.matrix = static_cast<Matrix>(m);
    job.landed->Store(0);
    for (size_t i = 0; i < leases.size(); ++i) {
      const Lease& lease = *leases.lease(i);
      job.parts.push_back({.rows = lease.matrix(job.matrix),
                           .of = rows_of[lease.key().expert.value],
                           .lease = &lease});
      CHECK(!job.parts.back().of.empty());
    }
  }
}

void KernelProducts::Forget(uint32_t group) {
  for (Job* const job : groups_[group]) job->parts.clear();
}

// Turns the node into an operation of ours. ggml keeps an operation's function in the node's
// parameters in a form of its own, so an operation made by ggml_custom_4d() is copied.
void KernelProducts::Become(ggml_tensor& node, Job& job) const {
  std::array<std::byte, 4096> room;
  ggml_context* const context =
      ggml_init({.mem_size = room.size(), .mem_buffer = room.data(), .no_alloc = true});
  CHECK(context != nullptr);
  ggml_tensor* source = ggml_new_tensor_1d(context, GGML_TYPE_F32, 1);
  const ggml_tensor* const made =
      ggml_custom_4d(context, GGML_TYPE_F32, 1, 1, 1, 1, &source, 1, Run, GGML_N_TASKS_MAX, &job);
  node.op = made->op;
  std::memcpy(node.op_params, made->op_params, sizeof(node.op_params));
  ggml_free(context);
}

Status KernelProducts::Replace(ggml_tensor& product, uint32_t group, uint32_t matrix) {
  TRY_STATUS(CheckRows(product));
  Become(product, *groups_[group][matrix]);
  return {};
}

// Refuses a node of another operation that reads interleaved rows.
Status KernelProducts::CheckOther(const ggml_tensor& node) const {
  for (const ggml_tensor* source : node.src) {
    if (source == nullptr || !dense_.contains(source->data)) continue;
    return Fail(Errc::kUnsupported, "{}: libllama uses it otherwise than it did before",
                static_cast<const char*>(source->name));
  }
  return {};
}

Status KernelProducts::ReplaceDense(ggml_tensor& node) {
  if (node.op != GGML_OP_MUL_MAT) return CheckOther(node);
  const auto found = dense_.find(node.src[0]->data);
  if (found == dense_.end()) return {};
  TRY_STATUS(CheckRows(node));
  Become(node, *found->second);
  return {};
}

}  // namespace moestro
