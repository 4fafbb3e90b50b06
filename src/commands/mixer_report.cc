// SPDX-License-Identifier: MIT
#include "commands/mixer_report.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.h"

namespace moestro {
namespace {

// "s" where there are several.
const char* Plural(size_t n) { return n == 1 ? "" : "s"; }

// Layers of one kind of mixer, by number.
struct Kind {
  const LayerSpec* layer = nullptr;  // the first one
  std::vector<size_t> numbers;
};

std::vector<Kind> KindsOf(const ModelSpec& spec) {
  std::vector<Kind> kinds;
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    const LayerSpec& layer = spec.layers[l];
    const auto same = [&](const Kind& kind) { return kind.layer->mixer == layer.mixer; };
    auto kind = std::ranges::find_if(kinds, same);
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), {.layer = &layer, .numbers = {}});
    kind->numbers.push_back(l);
  }
  return kinds;
}

// " (3 to 59)", " (every 2nd from 2 to 42)"; empty where the layers have no even step.
std::string NumbersText(const std::vector<size_t>& numbers) {
  if (numbers.size() == 1) return Format(" ({})", numbers[0]);
  const size_t step = numbers[1] - numbers[0];
  for (size_t i = 2; i < numbers.size(); ++i) {
    if (numbers[i] - numbers[i - 1] != step) return "";
  }
  if (step == 1) return Format(" ({} to {})", numbers.front(), numbers.back());
  if (numbers.size() == 2) return Format(" ({} and {})", numbers.front(), numbers.back());
  const char* ending = step == 2 ? "nd" : step == 3 ? "rd" : "th";
  return Format(" (every {}{} from {} to {})", step, ending, numbers.front(), numbers.back());
}

// The indexer by which rows of a layer choose, or have their choice; nullptr: they attend to all.
const IndexerSpec* IndexerOf(const LayerSpec& layer) {
  const auto in_use = [](const std::optional<IndexerSpec>& indexer) {
    return indexer && !indexer->is_idle ? &*indexer : nullptr;
  };
  if (const AttentionSpec* a = layer.attention(); a != nullptr) return in_use(a->indexer);
  if (const LatentAttentionSpec* a = layer.latent_attention(); a != nullptr) {
    return in_use(a->indexer);
  }
  const PooledAttentionSpec* a = layer.pooled_attention();
  return a != nullptr ? in_use(a->indexer) : nullptr;
}

// The choice of attention with heads or with a latent, behind ", over "; empty without a choice.
std::string ChoiceText(const LayerSpec& layer) {
  const IndexerSpec* indexer = IndexerOf(layer);
  if (indexer == nullptr) return "";
  std::string text = ", over ";
  const uint32_t n = indexer->top_k / indexer->n_pool;
  if (indexer->n_pool > 1) {
    text += Format("{} block{} of {} positions", n, Plural(n), indexer->n_pool);
  } else {
    text += Format("{} position{}", n, Plural(n));
  }
  if (indexer->is_shared) return text + " that an earlier layer chose";
  text += Format(" that {} indexer head{} ", indexer->n_head, Plural(indexer->n_head));
  if (indexer->n_choices() > 1) {
    text += "choose each, for the heads that share keys";
  } else {
    text += indexer->n_head == 1 ? "chooses" : "choose";
  }
  if (indexer->n_last_pools > 0) {
    text += Format(", the last {} always", indexer->n_last_pools);
  }
  return text;
}

std::string PooledText(const PooledAttentionSpec& pooled) {
  std::string text = Format("{} heads that share a key of {}, over {} positions", pooled.n_head,
                            pooled.head_dim, pooled.window);
  if (pooled.n_pool > 0) text += Format(" and pools of {}", pooled.n_pool);
  if (pooled.indexer) {
    text += Format(", {} of which {} indexer heads choose", pooled.indexer->top_k,
                   pooled.indexer->n_head);
  }
  return text;
}

std::string MixerText(const LayerSpec& layer) {
  if (const StateSpec* state = layer.state(); state != nullptr) {
    return Format("{} with a state of {} values", state->kind, state->n_values);
  }
  if (const DeltaNetSpec* delta = layer.delta_net(); delta != nullptr) {
    return Format("delta net of {} heads, {} for keys, of {}", delta->n_head_v, delta->n_head_k,
                  delta->head_dim);
  }
  if (const Mamba2Spec* mamba = layer.mamba2(); mamba != nullptr) {
    return Format("Mamba-2 of {} heads of {}, state {}", mamba->n_head, mamba->head_dim,
                  mamba->n_state);
  }
  if (const ShortConvSpec* conv = layer.short_conv(); conv != nullptr) {
    return Format("short convolution over {} positions", conv->n_taps);
  }
  if (const LatentAttentionSpec* latent = layer.latent_attention(); latent != nullptr) {
    return Format("{} heads that share a latent of {} and {} turned values", latent->n_head,
                  latent->n_latent, latent->n_turned) +
           ChoiceText(layer);
  }
  if (const PooledAttentionSpec* pooled = layer.pooled_attention(); pooled != nullptr) {
    return PooledText(*pooled);
  }
  if (!layer.has_mixer()) return "experts alone";
  const AttentionSpec& a = *layer.attention();
  std::string text =
      Format("{} heads, {} for keys and values, of {}", a.n_head, a.n_head_kv, a.head_dim_k);
  if (a.window > 0) text += Format(", over {} positions", a.window);
  return text + ChoiceText(layer);
}

}  // namespace

HeadSizes HeadSizesOf(const ModelSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    if (const AttentionSpec* a = layer.attention(); a != nullptr) {
      return {.n_head = a->n_head, .n_head_kv = a->n_head_kv, .head_dim = a->head_dim_k};
    }
    if (const LatentAttentionSpec* a = layer.latent_attention(); a != nullptr) {
      return {.n_head = a->n_head, .n_head_kv = 1, .head_dim = a->n_key()};
    }
    if (const PooledAttentionSpec* a = layer.pooled_attention(); a != nullptr) {
      return {.n_head = a->n_head, .n_head_kv = 1, .head_dim = a->head_dim};
    }
  }
  return {};
}

std::string MixersText(const ModelSpec& spec) {
  const std::vector<Kind> kinds = KindsOf(spec);
  if (kinds.size() == 1) return ", " + MixerText(*kinds.front().layer);
  std::string text;
  for (const Kind& kind : kinds) {
    const size_t n = kind.numbers.size();
    text += Format("; {} layer{}{}: {}", n, Plural(n), NumbersText(kind.numbers),
                   MixerText(*kind.layer));
  }
  return text;
}

Json MixersAsJson(const ModelSpec& spec) {
  Json all = Json::Array();
  for (const Kind& kind : KindsOf(spec)) {
    Json numbers = Json::Array();
    for (const size_t number : kind.numbers) numbers.Push(number);
    const IndexerSpec* indexer = IndexerOf(*kind.layer);
    const PooledAttentionSpec* pooled = kind.layer->pooled_attention();
    const AttentionSpec* attention = kind.layer->attention();
    uint32_t pool = indexer != nullptr ? indexer->n_pool : 0;
    if (pooled != nullptr) pool = pooled->n_pool;
    Json mixer = Json::Object();
    mixer.Set("layers", std::move(numbers))
        .Set("text", MixerText(*kind.layer))
        .Set("window", pooled != nullptr      ? pooled->window
                       : attention != nullptr ? attention->window
                                              : 0U)
        .Set("pool", pool)
        .Set("chosen", indexer != nullptr ? indexer->top_k / indexer->n_pool : 0U)
        .Set("always", indexer != nullptr ? indexer->n_last_pools : 0U)
        .Set("choices", indexer != nullptr ? indexer->n_choices() : 0U);
    all.Push(std::move(mixer));
  }
  return all;
}

}  // namespace moestro
