// Whatever a checkpoint holds beside the tensors that are compared by their names: states of
// schedules, scalers and random generators, counters, texts, arguments.
#pragma once

#include <set>
#include <string>

#include "absl/status/status.h"
#include "audit/checkpoints/equality.h"
#include "audit/checkpoints/names_map.h"
#include "audit/checkpoints/pieces.h"
#include "audit/checkpoints/side.h"

namespace plumbline::audit {

// Values of both sides by their place ("optimizer.param_groups.0.weight_decay"), rank by rank:
// equal in type and bits; tensors of no name and storages are read. The order of dicts and sets,
// the class of a dict, what hangs below a bound method, and what is set on plain containers as
// attributes are not told apart. An object whose class is not known is what it is made of. Sides of
// different numbers of ranks: the first rank's, and what other ranks tell differently is set aside.
// What is named `told` at the end of its place was told already. What the map leaves out goes to
// `left_out`.
absl::Status CompareValues(const CheckpointSide& a, const CheckpointSide& b, const NamesMap& names,
                           const std::set<std::string>& told, PieceReader* reader,
                           LeftOut* left_out, Equality* out);

}  // namespace plumbline::audit
