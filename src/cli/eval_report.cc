// SPDX-License-Identifier: MIT
#include "cli/eval_report.h"

#include <cmath>
#include <string_view>

#include "base/bytes.h"
#include "base/format.h"
#include "cli/report.h"

namespace moestro {
namespace {

// "0.0123 ± 0.0004", in units of 1 / `scale`.
std::string WithError(const Estimate& estimate, double scale = 1.0) {
  std::string text = Format("{:.4g}", estimate.value * scale);
  if (std::isnan(estimate.error)) return text + " (error not known: too few tokens)";
  return text + Format(" ± {:.2g}", estimate.error * scale);
}

void SetEstimate(Json& object, std::string_view name, std::string_view error_name,
                 const Estimate& estimate) {
  object.Set(name, estimate.value).Set(error_name, estimate.error);
}

}  // namespace

std::string DescribeEval(const EvalResult& result) {
  const EvalFigures& figures = result.figures;
  std::string text = Format("text     {} tokens in {} windows\n", figures.tokens, result.windows);
  text += Format("ppl      {}\n", WithError(figures.perplexity));
  if (figures.against) {
    const EvalFigures::Against& a = *figures.against;
    text += Format("exact    perplexity {:.4g}\n", a.exact_perplexity);
    text += Format("KL       {} nats per token\n", WithError(a.kl_mean));
    text += Format("         99 %: {}, 99.9 %: {}, maximum: {:.4g}\n", WithError(a.kl_p99),
                   WithError(a.kl_p999), a.kl_max);
    text += Format("delta p  {} % (root mean square, of the text's next token)\n",
                   WithError(a.delta_p_rms, 100.0));
    text += Format("top-1    {} % the same\n", WithError(a.top1_agreement, 100.0));
  }
  text += Format("asked    {} per token\n",
                 FormatBytes(static_cast<uint64_t>(std::llround(result.bytes_per_token()))));
  return text + SummaryText(result.report);
}

Json EvalAsJson(const EvalResult& result) {
  const EvalFigures& figures = result.figures;
  Json object = Json::Object();
  object.Set("tokens", figures.tokens).Set("windows", result.windows);
  SetEstimate(object, "perplexity", "perplexity_se", figures.perplexity);
  if (figures.against) {
    const EvalFigures::Against& a = *figures.against;
    object.Set("exact_perplexity", a.exact_perplexity);
    SetEstimate(object, "kl_mean", "kl_se", a.kl_mean);
    SetEstimate(object, "kl_p99", "kl_p99_se", a.kl_p99);
    SetEstimate(object, "kl_p999", "kl_p999_se", a.kl_p999);
    object.Set("kl_max", a.kl_max);
    SetEstimate(object, "delta_p_rms", "delta_p_rms_se", a.delta_p_rms);
    SetEstimate(object, "top1_agreement", "top1_agreement_se", a.top1_agreement);
  }
  object.Set("bytes_per_token", result.bytes_per_token());
  AddReport(object, result.report);
  return object;
}

}  // namespace moestro
