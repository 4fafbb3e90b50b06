// SPDX-License-Identifier: MIT
// How experts lie in their slots. An expert that comes from the disk lies as in the file and is
// multiplied so. When it is met again it stays for a while: whoever multiplies a block of its rows
// interleaves them first (ExpertKernel::interleave), and leases take a note of it. Where every
// expert has a slot, one that was preloaded is interleaved at its first use.
#include <cstddef>
#include <vector>

#include "device/expert_kernel.h"
#include "forward/experts/layer_run.h"

namespace moestro {

static_assert(kTileRows % ExpertKernel::kInterleavedRows == 0, "blocks are split there");

// Thread 0, before the first matrix of the job is shown to the others.
void LayerRun::ChooseLayout(size_t j) {
  const Lease& lease = *leases_.lease(j);
  const Lease::Notes notes = lease.notes();
  const InterleaveWhen when = s_.parts.interleave;
  // Only what is there completely: a read may go on when this layer has failed.
  const bool pays = notes.was_used || (when == InterleaveWhen::kThere && lease.is_complete());
  JobState& job = s_.jobs[j];
  job.is_interleaved = notes.is_interleaved;
  job.is_to_interleave = when != InterleaveWhen::kNever && pays && !notes.is_interleaved;
}

bool LayerRun::is_interleaved(size_t j, size_t m) const {
  const JobState& job = s_.jobs[j];
  return (job.is_interleaved || job.is_to_interleave) &&
         job.form->kernels->kernel[m].interleave != nullptr;
}

// The block's rows are in the cache afterwards.
void LayerRun::Interleave(size_t j, size_t m, RowBlock block, int thread) {
  if (!s_.jobs[j].is_to_interleave || !is_interleaved(j, m)) return;
  const FormKernels& f = *s_.jobs[j].form->kernels;
  f.kernel[m].interleave({.rows = s_.jobs[j].matrix[m] + block.begin * f.row_bytes[m],
                          .row_bytes = f.row_bytes[m],
                          .n_rows = block.count},
                         s_.groups[static_cast<size_t>(thread)].data());
}

bool LayerRun::HasBegun(size_t j) const {
  for (uint32_t t = 0; t < s_.parts.team.threads(); ++t) {
    const JobShare& its = share(j, static_cast<int>(t));
    if (its.hidden.has_begun() || its.down.has_begun()) return true;
  }
  return false;
}

// What a failed run has left of an expert.
void LayerRun::InterleaveRest(size_t j) {
  const JobState& job = s_.jobs[j];
  for (uint32_t t = 0; t < s_.parts.team.threads(); ++t) {
    JobShare& its = share(j, static_cast<int>(t));
    while (const auto block = its.hidden.Claim(job.form->hidden_rows)) {
      Interleave(j, kMatrixGate, *block, 0);
      Interleave(j, kMatrixUp, *block, 0);
    }
    while (const auto block = its.down.Claim(job.form->down_rows)) {
      Interleave(j, kMatrixDown, *block, 0);
    }
  }
}

void LayerRun::LetGo(size_t j) {
  JobState& job = s_.jobs[j];
  // Of an expert that nobody was shown nothing is known here.
  if (j < n_host_ && job.has(kMatrixGate) && job.has(kMatrixUp) && job.has(kMatrixDown)) {
    leases_.lease(j)->SetNotes(
        {.was_used = true, .is_interleaved = job.is_interleaved || job.is_to_interleave});
  }
  job.let_go = true;
  leases_.LetGo(j);
}

void LayerRun::Close() {
  for (size_t j = 0; j < n_host_; ++j) {
    if (leases_.lease(j) == nullptr) continue;
    if (s_.jobs[j].is_to_interleave && HasBegun(j)) {
      InterleaveRest(j);
    } else {
      s_.jobs[j].is_to_interleave = false;  // no row of it was met
    }
    LetGo(j);
  }
}

}  // namespace moestro
