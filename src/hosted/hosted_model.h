// SPDX-License-Identifier: MIT
// A model in libllama whose file is mapped but not read: its context, the learned uses of its
// tensors, and our own memory at the addresses of resident tensors.
//
// Thread rule: the engine thread.
#pragma once

#include <llama.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/extent.h"
#include "core/kv_cells.h"
#include "hosted/file_mapping.h"
#include "hosted/learned_graph.h"
#include "model/gguf_file.h"
#include "store/read_queue.h"

namespace moestro {

class HostedModel {
 public:
  struct Shape {
    uint32_t n_cells = 0;             // cells of the KV cache
    uint32_t n_places = 0;            // sequences at a time
    uint32_t n_places_of_states = 0;  // sequences at a time if layers have a state
    uint32_t chunk = 0;               // rows of a llama_decode(), at most
    uint32_t outputs = 0;             // rows of a chunk with logits, at most
    uint32_t threads = 0;
    KvType kv_type = KvType::kF16;
    bool embeds = false;  // the context gives embeddings of texts in place of logits
  };
  // kInvalidFile: libllama cannot read the model; the message has libllama's reason. kUnsupported:
  // libllama keeps no memory of earlier tokens for a model that writes text, or an error of
  // LearningPass.
  // kNoMemory. The file must outlive the result.
  static Result<std::unique_ptr<HostedModel>> Open(const GgufFile& file, const Shape& shape);

  llama_context* context() const { return context_.get(); }
  // nullptr: the model gives embeddings, and every token of a text attends to all.
  llama_memory_t memory() const { return llama_get_memory(context_.get()); }
  GraphHooks& hooks() { return hooks_; }
  const LearnedGraph& graph() const { return graph_; }
  uint32_t n_vocab() const;
  uint32_t n_ctx_train() const;
  uint32_t n_embd() const;  // values of an embedding
  uint32_t n_cells() const { return llama_n_ctx(context_.get()); }
  uint32_t n_places() const { return n_places_; }
  // Whether a layer has a state, which cannot be cut back.
  bool has_states() const;
  // Positions of a window, the token's own included; 0: no layer has one.
  uint32_t n_window() const;
  // Bytes of the context that are resident after their first use. memory_bytes(): cells and states.
  // work_bytes(): the buffers of a chunk, and graphs.
  uint64_t memory_bytes() const { return memory_bytes_; }
  uint64_t work_bytes() const { return work_bytes_; }
  // The process's resident memory with the model, before the context is made: making it touches
  // some pages of the buffers, and how many varies.
  uint64_t resident_before() const { return resident_before_; }
  uint64_t dense_bytes() const;  // bytes of the tensors that LoadDense() reads
  uint64_t whole_bytes() const;  // bytes that every chunk reads: dense_bytes() without tables
  std::vector<MappedTensor> tables_in_file() const;  // the larger tables

  // Puts memory at the addresses of every tensor without experts and reads the tensor there. Larger
  // tables stay in the file, because a token takes only one of their rows; so do experts. kIo;
  // kNoMemory; kUnsupported: the disk's blocks are larger than a page. REQUIRES: the queue is idle.
  Status LoadDense(ReadQueue& queue);

 private:
  struct Free {
    void operator()(llama_model* model) const { llama_model_free(model); }
    void operator()(llama_context* context) const { llama_free(context); }
  };
  // Whole pages of tensors that lie side by side.
  struct DenseRun {
    std::byte* begin = nullptr;
    uint64_t length = 0;
    Extent from;  // from the first page to the last tensor's end
  };
  HostedModel() = default;
  Status Load(const GgufFile& file, const Shape& shape);
  Status MakeContext(const GgufFile& file, const Shape& shape);
  static Status NoText(const GgufFile& file);
  Status CheckUse(const GgufFile& file, const Shape& shape) const;
  Status CheckWholeLayers(const GgufFile& file) const;
  bool is_mapped(const MappedTensor& tensor) const;
  Status CheckAddresses() const;
  std::vector<DenseRun> DenseRuns() const;
  uint64_t ScratchBytes(uint32_t chunk) const;

  std::unique_ptr<llama_model, Free> model_;
  std::vector<MappedRange> ranges_;  // of the files
  GraphHooks hooks_;
  std::unique_ptr<llama_context, Free> context_;
  LearnedGraph graph_;
  uint32_t n_places_ = 0;
  uint64_t resident_before_ = 0;
  uint64_t memory_bytes_ = 0;
  uint64_t work_bytes_ = 0;
  uint64_t graph_bytes_ = 0;  // reserved for the description of graphs
};

}  // namespace moestro
