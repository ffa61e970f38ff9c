// One collective as its ranks saw it: joined over ranks, decoded, checked. The room's entry: who
// stands outside includes this header alone.
#pragma once

#include "analysis/collective/case/call.h"      // IWYU pragma: export
#include "analysis/collective/case/distinct.h"  // IWYU pragma: export
#include "analysis/collective/case/join.h"      // IWYU pragma: export
#include "analysis/collective/case/outputs.h"   // IWYU pragma: export
