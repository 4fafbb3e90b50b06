// SPDX-License-Identifier: MIT
#include "doctor/diagnose.h"

#include <algorithm>

#include "doctor/memory_findings.h"
#include "doctor/model_findings.h"
#include "doctor/processor_findings.h"
#include "doctor/software_findings.h"

namespace moestro {

Findings Diagnose(const SystemFacts& facts) {
  Findings findings;
  if (facts.model) AddModelFindings(*facts.model, findings);
  AddReaderFindings(facts, findings);
  AddMemoryFindings(facts, findings);
  AddFolderFindings(facts.folders, findings);
  AddProcessorFindings(facts, findings);
  AddSoftwareFindings(facts, findings);
  AddGraphicsFindings(facts, findings);
  return findings;
}

Verdict WorstOf(const Findings& findings) {
  Verdict worst = Verdict::kOk;
  for (const Finding& finding : findings) worst = std::max(worst, finding.verdict);
  return worst;
}

}  // namespace moestro
