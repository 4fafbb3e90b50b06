// SPDX-License-Identifier: MIT
// The main path: rows in, logits in StepBuffers out. step.cc is the file to read first.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/work_limit.h"
#include "core/batch.h"
#include "core/ids.h"
#include "core/model_spec.h"
#include "decide/layer/layer_protocol.h"
#include "devices/device_list.h"
#include "engine/watchers.h"
#include "forward/dense/carried_rows.h"
#include "forward/dense/layer_graph.h"
#include "forward/experts/expert_exec.h"
#include "forward/experts/expert_stage.h"
#include "residency/residency.h"

namespace moestro {

class Forward {
 public:
  explicit Forward(const ForwardParts& parts);

  // Called before every layer; an error ends the step.
  using LayerBegins = std::function<Status(uint32_t layers_done)>;
  // Rows on their way through the layers: at most a chunk. For a model with an encoder, rows of
  // sources go through the encoder's layers, or rows of targets through the decoder's, never both.
  // Rows, kinds and little are borrowed.
  struct Pass {
    std::span<const StepRow> rows;
    std::span<const RowKind> kinds;  // [rows]
    const LittleStep& little;
    LayerBegins layer_begins = {};  // may be empty
    bool decodes = false;
    size_t prompt_rows = 0;
    uint32_t look_ahead = 0;
    LayerRange layers = {};       // layers that are left
    LeaseStream read_ahead = {};  // reads of the layers about to run whose experts are known
    std::optional<LayerGraph::RowsAside> aside = {};  // while other rows use the buffers
    StepRows head = {};     // rows whose logits will be wanted first; count 0: of none
    bool predicts = false;  // the pass goes through the predicting layer alone
    Status made_way = {};   // an error of this pass that showed when others wanted the buffers
  };
  // Sets the rows and writes their embeddings. kDevice.
  Result<Pass> Begin(std::span<const StepRow> rows, std::span<const RowKind> kinds,
                     const LittleStep& little, LayerBegins layer_begins, StepRows head = {});
  // Computes the layers that are left, and leaves the last one's output in buffers.hidden(). kIo,
  // kInterrupted: only the rows' cells have changed. kInvalidFile: a layer gave NaN or infinity;
  // the message names the layer.
  Status Finish(Pass& pass);
  // Computes the next layer; errors as Finish(). True: no layer is left. REQUIRES: the graph is not
  // on a device, and no row decodes.
  Result<bool> Advance(Pass& pass);
  // Lets a pass of `n_rows` other rows come before the pass's next layer. May be called again for
  // further passes. kDevice; other errors are the pass's own, and its next Advance() returns them.
  // REQUIRES: as Advance().
  Status MakeWay(Pass& pass, size_t n_rows);

  // For a model that predicts further tokens (predict.cc). Behind a pass whose logits were taken:
  // gives the rows keys and values in the predicting layer. Its experts are not needed for these.
  // Errors as Finish(). REQUIRES: hidden holds the last layer's output.
  Status Follow(std::span<const StepRow> rows);
  // The token that the predicting layer expects behind the row's token. The first row of a draft
  // follows the last row that was computed, others the row of the call before. Errors as Finish().
  // REQUIRES: the row has cells, and all rows before it have keys and values in that layer.
  Result<Token> PredictNext(const StepRow& row, bool is_first);

  // The K experts of each row in the last little step, [layer][row][K] in router order. The row
  // used the first of these K.
  std::span<const std::vector<ExpertId>> widened() const { return router_.widened(); }
  // Time since creation, in steps whose graphs the team runs, that more threads would not shorten:
  // all of the layers' time but shared products, attention and experts, and waits for bytes.
  struct Serial {
    double seconds = 0.0;
    uint64_t steps = 0;
  };
  const Serial& serial() const { return serial_; }
  // Layers whose rows stayed on the first device, since creation.
  uint64_t layers_there() const { return experts_.layers_there(); }

 private:
  Status TakeAside(Pass& pass, size_t n_rows);
  LayerRange LayersOf(std::span<const StepRow> rows) const;
  bool IsForTeam(const Pass& pass) const;
  Status RunHeld(Pass& pass);
  Status RunLayers(Pass& pass);
  Status RunLayer(Pass& pass);
  Status RunExperts(LayerId layer, Pass& pass);
  LeaseStream ReadAhead(uint32_t first, const Pass& pass) const;
  uint16_t WholeLayers(const Pass& pass);
  Status RunWhole(uint16_t n_layers, Pass& pass);
  Status RunParts(LayerRange layers, Pass& pass);
  Status RunAgain(LayerRange layers, LayerId from, Pass& pass);
  Status TellLayer(const Pass& pass) const;
  Result<bool> TakeChoices(LayerRange layers, size_t n_rows);
  Result<bool> IsRule(LayerId layer, const WholeGraph::Choice& choice,
                      std::span<const ExpertId> experts);
  void DecideWhole(LayerId layer, const Pass& pass, double seconds);
  void Decide(ExpertLayerId layer, const Pass& pass);
  Status End(const Pass& pass);

  ForwardParts parts_;
  RowRouter router_;
  ExpertStage experts_;
  // State of the layer that runs; members, so that the next layer reuses their memory.
  Routing routing_;
  std::vector<Routing> chosen_there_;  // [layer with experts of a run of whole layers]
  RoutedAhead ahead_;
  LayerPlan plan_;
  LeaseStream leases_;
  Serial serial_;
  std::optional<CarriedRows> carried_;  // nullopt: the model predicts no further tokens
  std::vector<float> predicted_;        // the predicting layer's output of the last PredictNext()
};

}  // namespace moestro
