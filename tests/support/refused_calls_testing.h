// SPDX-License-Identifier: MIT
// System calls that the kernel refuses, as file systems do that have no links or no locks.
#pragma once

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace moestro {

struct RefusedCall {
  uint32_t number;  // SYS_…
  uint32_t error;   // that it fails with
};

// Refuses the calls to this thread and those that it starts later, for good. False: the kernel does
// not let it.
inline bool RefuseCalls(const std::vector<RefusedCall>& calls) {
  std::vector<sock_filter> program{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, uint32_t{offsetof(seccomp_data, nr)})};
  for (const RefusedCall& call : calls) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call.number, 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | call.error));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{.len = static_cast<unsigned short>(program.size()),
                          .filter = program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

// The calls that make symbolic links, as exFAT refuses them.
inline std::vector<RefusedCall> CallsForLinks(uint32_t error) {
  std::vector<RefusedCall> calls{{SYS_symlinkat, error}};
#ifdef SYS_symlink
  calls.push_back({SYS_symlink, error});
#endif
  return calls;
}

}  // namespace moestro
