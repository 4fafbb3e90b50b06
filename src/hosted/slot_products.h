// SPDX-License-Identifier: MIT
// Lets libllama multiply by experts that lie in slots. A product by chosen experts
// (GGML_OP_MUL_MAT_ID) reads three tensors:
//
//   src[0]  matrices of all experts [k, rows, n_expert] -> of all slots of the pool [.., n_slots]
//   src[1]  activations, unchanged
//   src[2]  chosen experts [n_used, n_tokens]           -> the slots of these experts
//
// The first and the third are replaced in the graph by tensors of this class just before ggml
// computes the product. ggml computes each row and expert by itself, so the result has the same
// bits. Huge pages hold the slots. At the file's own addresses an expert would lie in small pages,
// where each first touch cost 4 us of address translation in a virtual machine.
//
// Thread rule: the engine thread, within llama_decode().
#pragma once

#include <ggml.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/batch.h"
#include "core/expert_catalog.h"
#include "core/ids.h"
#include "hosted/learned_graph.h"
#include "residency/leases.h"
#include "residency/residency.h"

namespace moestro {

class SlotProducts {
 public:
  struct Product {
    uint32_t group = 0;
    uint32_t matrix = 0;
  };
  // All is borrowed and must outlive this. Graphs that were computed meanwhile hold pointers into
  // this, so libllama's context computes nothing after this is gone.
  SlotProducts(const LearnedGraph& graph, const ExpertCatalog& catalog, const Residency& residency);
  SlotProducts(const SlotProducts&) = delete;
  SlotProducts& operator=(const SlotProducts&) = delete;

  // The group and matrix that a node multiplies by; nullopt for a product without experts in slots.
  std::optional<Product> Find(const ggml_tensor& product) const;
  // Sets the choice that a group's next products follow. REQUIRES: `leases` has every chosen
  // expert, complete, until the last of the products is computed; `ids` has at least one row.
  void Choose(uint32_t group, const ggml_tensor& ids, const Routing& routing,
              const LeaseStream& leases);
  // REQUIRES: the group's choice is made, and `product` is not computed yet.
  void Redirect(ggml_tensor& product, Product which);

 private:
  struct Group {
    Residency::Grid grid;
    // Bytes from a slot's window to the matrix; nullopt: the number differs between experts.
    std::array<std::optional<uint64_t>, kMatrices> residue{};
    std::array<uint64_t, kMatrices> length{};  // of an expert's matrix
    std::array<ggml_tensor, kMatrices> matrices{};
    ggml_tensor ids{};
    std::vector<int32_t> slots;    // [n_tokens][n_used]
    std::vector<int32_t> slot_of;  // [n_expert]; only of the chosen ones
  };
  void BringToFront(const Group& group, const Lease& lease) const;

  std::vector<Group> groups_;
  std::unordered_map<const void*, Product> by_data_;         // the file's matrices, by address
  std::unordered_map<const ggml_tensor*, Product> by_ours_;  // the tensors of groups_
};

}  // namespace moestro
