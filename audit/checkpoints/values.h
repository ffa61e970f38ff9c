// Compares the values of a checkpoint other than the tensors that are compared by name: states of
// schedulers, scalers and random generators, counters, texts, arguments.
#pragma once

#include <set>
#include <string>

#include "absl/status/status.h"
#include "audit/checkpoints/equality.h"
#include "audit/checkpoints/names_map.h"
#include "audit/checkpoints/pieces.h"
#include "audit/checkpoints/side.h"

namespace plumbline::audit {

// Compares values of both sides by their place ("optimizer.param_groups.0.weight_decay"), rank by
// rank, for equal type and bits. Reads unnamed tensors and storages. Ignores the order of dicts and
// sets, the class of a dict, values reachable through a bound method, and attributes of plain
// containers. Compares an object of unknown class by its parts. If the numbers of ranks differ,
// compares the first ranks, and sets aside values that differ on other ranks. Skips places whose
// last part is in `reported`. Adds values that the map leaves out to `left_out`.
absl::Status CompareValues(const CheckpointSide& a, const CheckpointSide& b, const NamesMap& names,
                           const std::set<std::string>& reported, PieceReader* reader,
                           LeftOut* left_out, Equality* out);

}  // namespace plumbline::audit
