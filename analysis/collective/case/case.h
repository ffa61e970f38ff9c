// One collective as its ranks observed it: joined over ranks, decoded, checked. The entry header of
// this folder: code outside includes only this header.
#pragma once

#include "analysis/collective/case/call.h"      // IWYU pragma: export
#include "analysis/collective/case/distinct.h"  // IWYU pragma: export
#include "analysis/collective/case/join.h"      // IWYU pragma: export
#include "analysis/collective/case/outputs.h"   // IWYU pragma: export
