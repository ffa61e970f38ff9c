// Which of many tensors are biased: e-BH (Wang and Ramdas, "False discovery rate control with
// e-values", 2022). Of the tensors it names, the expected share that is not biased is at most
// alpha, whatever the dependence between them.
#pragma once

#include <span>
#include <vector>

namespace plumbline::rules {

// `log_e`: ln of one e-value a tensor (wealth at one time, not its running maximum, which is none).
// NaN is never selected and still counts as a tensor. Returns [log_e.size()]: selected or not. The
// k largest are, k the most with the k-th e-value at least K / (alpha k). Pure.
std::vector<bool> SelectByEBh(std::span<const double> log_e, double alpha);

}  // namespace plumbline::rules
