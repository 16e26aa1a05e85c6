#include "backend/backend.h"

#include <cstring>

#include "base/clock.h"
#include "base/error.h"

namespace pd {

void Backend::Transfer(Queue /*queue*/, void* to, const void* from, size_t bytes) {
  if (to != from) std::memcpy(to, from, bytes);
}

void Backend::Record(Queue /*queue*/, Mark& mark, const char* /*purpose*/) {
  mark.host_ns = NowNs();
}

double Backend::ElapsedMs(const Mark& from, const Mark& to) const {
  return NsToMs(to.host_ns - from.host_ns);
}

std::unique_ptr<Op> Backend::PlanTimed(const TimedDesc& /*desc*/, const OpRequest& /*request*/) {
  Throw(ErrorCode::kInvalidInput,
        "layers of type timed compute nothing: expected --device timed, found {}", kind());
}

}  // namespace pd
