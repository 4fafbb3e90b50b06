// SPDX-License-Identifier: MIT
// The supported families, each made by the file of its name.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "model/families/family.h"

namespace moestro {

Family AfMoe();
Family BailingMoe2();
Family DeepSeek2();
Family DeepSeek32();
Family GlmDsa();
Family Dots1();
Family Ernie45Moe();
Family ExaoneMoe();
Family Gemma4();
Family Glm4Moe();
Family GptOss();
Family GraniteHybrid();
Family GraniteMoe();
Family HunyuanMoe();
Family KimiLinear();
Family Lfm2Moe();
Family Laguna();
Family Llama();
Family MiniMaxM2();
Family NemotronHMoe();
Family Olmoe();
Family Phimoe();
Family Qwen2Moe();
Family Qwen35Moe();
Family Qwen3Moe();
Family Qwen3Next();
Family Switch();

std::span<const Family> Families();

// Each makes a group of tensors that several families share required.
void RequireQkNorms(LayerRoles<Presence>& layer);
void RequireSharedExpert(LayerRoles<Presence>& layer);
void RequireDenseBlock(LayerRoles<Presence>& layer);
void RequireDeltaNet(LayerRoles<Presence>& layer);
void RequireKimiDelta(LayerRoles<Presence>& layer);
void RequireMamba2(LayerRoles<Presence>& layer);
void RequireLatentAttention(LayerRoles<Presence>& layer);
void RequireIndexer(LayerRoles<Presence>& layer);

const Family* FindFamily(std::span<const Family> families, std::string_view name);  // or nullptr
std::string FamilyNames(std::span<const Family> families);  // "llama, olmoe"

}  // namespace moestro
