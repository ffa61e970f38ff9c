// Which parameter an optimizer's state belongs to: torch.optim keys it by a running number.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "audit/readers/checkpoint/contents.h"

namespace plumbline::audit {

// A number counts the parameters group by group, in the order in which the model names them. What
// is told is what only one such order fits: the first tensors of the model whose shapes fit in this
// order and the last ones are the same. Parameters that share their storage count once; running
// statistics of a normalisation count as none. `model`: the tensors of a model in its own order.
std::map<int64_t, std::string> NamesOfParameters(const std::vector<const NamedTensor*>& model,
                                                 const std::vector<const NamedTensor*>& state,
                                                 const std::vector<ParameterGroup>& groups);

// The shape of each parameter that has state of its own shape.
std::map<int64_t, std::vector<int64_t>> ShapesOfState(const std::vector<const NamedTensor*>& state);

}  // namespace plumbline::audit
