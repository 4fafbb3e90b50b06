// SPDX-License-Identifier: MIT
// The functions of custom nodes, so that code of ours can run a graph that has no other nodes. ggml
// keeps a node's function in the node's parameters and does not say where; a trial node tells.
//
// Thread rule: the engine thread.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <optional>

namespace moestro {

struct CustomCall {
  ggml_custom_op_t work = nullptr;
  void* userdata = nullptr;
  bool is_alone = false;  // for one thread
};

class CustomCalls {
 public:
  CustomCalls();
  // nullopt: `node` is no custom node, or where its function is could not be found out.
  std::optional<CustomCall> Of(const ggml_tensor* node) const;

 private:
  bool is_known_ = false;
};

}  // namespace moestro
