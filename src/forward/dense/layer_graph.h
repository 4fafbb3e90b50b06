// SPDX-License-Identifier: MIT
// Runs the dense part of a model: everything but the routed experts. On the CPU, or on a device
// that has the weights, the KV cache and the StepBuffers; then only results that a caller requests
// come back. Results are in StepBuffers, so that they outlive their graph.
//
// Thread rule: the engine thread.
#pragma once

#include <ggml.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/work_limit.h"
#include "compute/devices.h"
#include "compute/look_ahead.h"
#include "compute/team.h"
#include "core/ids.h"
#include "core/model_spec.h"
#include "devices/device_link.h"
#include "devices/step_buffers.h"
#include "forward/dense/attended_cells.h"
#include "forward/dense/attention.h"
#include "forward/dense/blocks.h"
#include "forward/dense/dense_nodes.h"
#include "forward/dense/graph_runner.h"
#include "forward/dense/layer_rows.h"
#include "forward/dense/mixers/mixer.h"
#include "forward/dense/ngrams.h"
#include "forward/dense/step_rows.h"
#include "forward/dense/whole_graph.h"
#include "memory/layer_values.h"
#include "residency/table_rows.h"

namespace moestro {

class LayerGraph {
 public:
  // Everything is borrowed and must outlive this.
  struct Parts {
    Team& team;
    const ModelSpec& spec;
    const ModelTensors& tensors;
    StepBuffers& buffers;
    KvCache& kv;
    StateStore& states;
    const Clock& clock;
    const LookAheadRouters* look_ahead = nullptr;  // for Attend() with look_ahead > 0
    // The link to the device of graphs, buffers, cache and routers. Null: the CPU.
    DeviceLink* link = nullptr;
    StopSignal* stop = nullptr;  // read within graphs on the CPU; null: no stop is requested
    MakeStateMixer make_state_mixer = {};  // for layers with a state
    TableRows* table = nullptr;            // for a layer that takes in n-grams
    ggml_type table_type = GGML_TYPE_F32;  // of the table's values
  };
  // n_ctx: the longest sequence. Sizes buffers for graphs of `chunk` rows. kNoMemory; kDevice if
  // the device does not compute some part; kUnsupported as MakeMixer().
  static Result<std::unique_ptr<LayerGraph>> Create(const Parts& parts, uint32_t n_ctx,
                                                    uint32_t chunk, uint32_t logits_rows);
  // The cells of a cache that has `n_cells` usable cells.
  static CellCounts CellsFor(const CellCounts& cells, bool is_on_device);
  // Waits until no launch uses the graph's memory.
  ~LayerGraph();
  // Bytes of intermediate results and masks, on the device or the CPU, and of each CPU thread's
  // buffers.
  uint64_t work_bytes() const { return work_bytes_; }
  uint64_t node_bytes() const { return graphs_.node_bytes(); }  // of kept graphs, in memory
  uint64_t thread_bytes() const;
  bool is_on_device() const { return link_ != nullptr; }

  // Sets the rows of the following calls, and writes their embeddings to hidden. Reads of the rows'
  // n-grams begin. kDevice.
  Status SetRows(std::span<const StepRow> rows);
  // Rows between two layers while other rows use the buffers: four lists of all rows, and the
  // values of the first rows, whose places the others use.
  struct RowsAside {
    std::vector<RowCells> visible;        // [row]
    std::vector<RowCells> recent;         // [row]
    std::vector<RowCells> sources;        // [row]
    std::vector<RowState> states;         // [row]
    std::vector<float> hidden;            // [first rows][n_embd]
    std::vector<float> residual;          // [first rows][n_residual], or empty
    std::vector<float> stream_weights;    // [first rows][n_weights], or empty
    std::vector<float> shared;            // [first rows][n_embd], or empty
    std::vector<int32_t> positions;       // [first rows]
    std::vector<int64_t> cells;           // [first rows]
    std::vector<int64_t> recent_cells;    // [first rows]
    ChosenPositions::SavedChoice chosen;  // choice of the first rows
    std::vector<std::byte> ngrams = {};   // of the first rows, or empty

    // Whether `n_others` other rows spare the values that are still in the buffers.
    bool has_room_for(size_t n_others) const {
      return n_others <= positions.size() || positions.size() == visible.size();
    }
  };
  // Takes the rows out of the buffers, for at most `n_others` other rows, and gives them back.
  // kIo. REQUIRES: !is_on_device().
  Result<RowsAside> TakeRows(size_t n_others);
  Status GiveRows(const RowsAside& rows);
  // hidden -> residual, shared (where the model has a shared expert), ffn_in [rows][n_embd_expert],
  // router logits; writes the KV cache. Also the router logits of the next `look_ahead` layers with
  // a router, at most to the last layer, on this layer's input. A layer without experts: only
  // hidden -> hidden. On a device, no launch is under way after the return of a layer with experts:
  // router logits are in memory, and other results stay on the device; code that computes experts
  // in memory gets them with FetchRows(). kInterrupted, kDevice: the results are undefined.
  // kInvalidFile: the layer gave NaN or infinity; the message names the layer. REQUIRES: look_ahead
  // is within the buffers' limit, and Parts::look_ahead is set if look_ahead is not 0.
  Status Attend(LayerId layer, uint32_t look_ahead = 0);
  // Whether Attend() of these layers for n_rows rows uses no other threads than the team's
  // (Team::Hold()).
  bool IsForTeam(LayerRange layers, size_t n_rows, uint32_t look_ahead) const;
  // For a model with an encoder, behind the encoder's last layer: hidden, normed -> keys and values
  // of the rows in the layers that attend to the source. kInterrupted. REQUIRES: rows of sources.
  Status RememberSource();
  // Copies residual, shared and ffn_in to memory; on the CPU this does nothing. kDevice.
  Status FetchRows();
  // The same for ffn_in alone.
  Status FetchInputs();
  // From now on the device may compute layers whole. Sizes memory for graphs of `rows` rows, whose
  // values are reported by work_bytes(). kDevice: the device does not compute some node; kNoMemory.
  Status AddWhole(const WholeLayers& whole, uint32_t rows);
  // Null: no layers are computed whole.
  WholeGraph* whole() { return whole_ ? &*whole_ : nullptr; }
  // Begins to compute layers whole, and for head.count > 0 the logits of these rows behind them,
  // which the next Head() of the same rows then takes. kDevice, kInterrupted. REQUIRES: whole()
  // takes the layers.
  Status BeginWhole(LayerRange layers, StepRows head);
  // Waits for the next part of the layers, of which it returns the layers, while the device
  // computes the part behind. kDevice, kInterrupted. REQUIRES: not all layers have landed.
  Result<LayerRange> LandWhole();
  // The choices of a layer that landed last. Takes the logits, if few rows have come with them, to
  // buffers.router(). kInvalidFile as Attend().
  Result<WholeGraph::Choice> ChoiceOf(LayerId layer);
  // Gives the rows the values that they had before BeginWhole(). kDevice.
  Status GoBack();
  // Notes that hidden is on the device and not in memory. has_partial: without the sum in
  // StepBuffers::partial(), in memory, which the next graph adds. REQUIRES: is_on_device().
  void HiddenIsThere(bool has_partial);
  // Seconds of evaluating layers, since creation.
  double seconds() const { return seconds_; }
  // Waits until no launch is under way on the device; kDevice.
  Status Finish() const { return link_ != nullptr ? link_->Finish() : Status(); }
  // Rows [first_row, first_row + n_rows) of hidden -> logits, in memory. kInvalidFile: some logit
  // is NaN or infinite. kInterrupted, kDevice. REQUIRES: n_rows <= logits_rows.
  Status Head(uint32_t first_row, uint32_t n_rows);

  // For a model that predicts further tokens, on the CPU. The rows' embeddings, and hidden, which
  // holds for each row the output of the row before, of the last layer or of the predicting one ->
  // hidden, the predicting layer's input. kInterrupted. REQUIRES: SetRows() had these rows.
  using HiddenOf = DenseNodes::HiddenOf;
  Status JoinPrediction(std::span<const StepRow> rows, HiddenOf from);
  // Row 0 of hidden, the predicting layer's output -> logits. Errors: those of Head().
  Status PredictionHead();

 private:
  explicit LayerGraph(const Parts& parts);
  static Ngrams::Parts NgramPartsOf(const Parts& parts);
  Status ComputeLayer(LayerId layer, uint32_t look_ahead);
  Status CheckFinite(LayerId layer) const;
  Status Reserve(uint32_t chunk, uint32_t logits_rows);
  // Sets the rows of the next run of the layer's graph.
  void Bind(LayerId layer, StepRows rows);
  const std::vector<RowCells>& CellsOf(LayerId layer) const;
  Status SetPositions();
  Status SendHidden();
  Status SendPartial();
  // Places of graphs behind those of the layers. kPartial: a partial sum is added alone.
  enum Behind : uint8_t { kHead, kPartial, kJoinLast, kJoinOwn, kPredictionHead, kBehind };
  size_t Place(Behind graph) const { return spec_->layers.size() + graph; }
  Status LaunchPart();
  Status LaunchHead(StepRows rows, uint32_t at);
  Status RunHead(StepRows all);
  uint64_t LogitsBytes(uint32_t rows) const {
    return uint64_t{rows} * spec_->n_vocab * sizeof(float);
  }
  Status FetchLogits(LayerId layer, uint32_t look_ahead);
  uint64_t row_bytes() const { return visible_.size() * spec_->n_embd * sizeof(float); }

  const ModelSpec* spec_;
  const ModelTensors* tensors_;
  StepBuffers* buffers_;
  KvCache* kv_;
  DeviceLink* link_;
  const Clock& clock_;
  uint32_t piece_rows_;                      // most rows of a layer in one graph
  std::vector<RowCells> visible_;            // cells by row
  std::vector<RowCells> recent_;             // cells by row, in layers with a window
  std::vector<RowCells> sources_;            // cells by row, in layers that attend to the source
  std::vector<RowState> states_;             // states by row
  std::unique_ptr<ChosenPositions> chosen_;  // null: no layer has an indexer
  std::optional<Ngrams> ngrams_;             // nullopt: no layer takes in n-grams
  bool is_hidden_there_ = false;
  bool has_partial_ = false;  // and hidden lacks the partial sum in memory
  double seconds_ = 0.0;
  uint64_t work_bytes_ = 0;
  std::vector<float> ahead_;  // scratch
  StepRows head_run_;         // rows whose logits have landed behind whole layers
  StepRows whole_head_;       // rows whose logits come behind whole layers
  // Parts of whole layers under way, and the numbers of their reads.
  std::deque<std::pair<LayerRange, uint64_t>> under_way_;
  FetchedRows fetched_;
  GraphRunner graphs_;
  DenseNodes nodes_;
  std::optional<WholeGraph> whole_;
};

}  // namespace moestro
