// An op that is being written; this file gives way to its own.
#include "backends/cpu/cpu_backend.h"
#include "core/error.h"

namespace memfloor::cpu {

std::unique_ptr<Projection> make_projection(const ProjectionDescriptor&, ThreadPool&) {
  throw Error("pending: projection");
}

}  // namespace memfloor::cpu
