// SPDX-License-Identifier: MIT
// The names of tensors that are made of parts, and the sizes of roles (core/tensor_roles.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/ids.h"
#include "core/model_spec.h"
#include "core/tensor_roles.h"

namespace moestro {

// Whether a layer has the roles of a part.
bool HasPart(const LayerSpec& layer, LayerModule part);

int64_t DimSize(Dim dim, const ModelSpec& spec, const LayerSpec* layer = nullptr);

std::string LayerTensorName(uint32_t layer, std::string_view name);  // blk.3.attn_q.weight
// The layer in a tensor's name; nullopt: the name has no layer.
std::optional<uint32_t> LayerOfTensorName(std::string_view name);
// Whether a tensor is part of an image encoder beside the language model.
bool IsOfVision(std::string_view name);
std::string MergedExpertsName(uint32_t layer, Matrix matrix);  // blk.3.ffn_gate_exps.weight
std::string LowExpertsName(uint32_t layer, Matrix matrix);     // blk.3.ffn_gate_exps_low.weight
std::string FusedGateUpName(uint32_t layer);                   // blk.3.ffn_gate_up_exps.weight
// Names by which converters wrote Mixtral before experts were merged: blk.3.ffn_gate.7.weight.
std::string SingleExpertName(uint32_t layer, Matrix matrix, uint32_t expert);

}  // namespace moestro
