// SPDX-License-Identifier: MIT
#include "text/text_request.h"

namespace moestro {

std::string_view ToString(StopReason reason) {
  switch (reason) {
    case StopReason::kEndToken:
      return "end";
    case StopReason::kLimit:
      return "limit";
    case StopReason::kStopString:
      return "stop string";
    case StopReason::kContextFull:
      return "context full";
    case StopReason::kTimeLimit:
      return "time limit";
    case StopReason::kInterrupted:
      return "interrupted";
    case StopReason::kOutputClosed:
      return "output closed";
  }
  return "";
}

}  // namespace moestro
