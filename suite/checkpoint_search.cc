#include "suite/checkpoint_search.h"

#include <algorithm>

#include "core/error.h"
#include "techniques/registry.h"

namespace memfloor {

// All peaks are relative to what lives outside a level: for a level from block i that is
// everything that was alive before, i's input included, but the statistics of normalisations and
// the gradient that comes in, which depend only on the place.

CheckpointSearch::CheckpointSearch(ChainProfile profile) : profile_(std::move(profile)) {
  statistics_.push_back(0);
  for (const BlockProfile& block : profile_.blocks)
    statistics_.push_back(statistics_.back() + block.statistics);
  search();
}

void CheckpointSearch::search() {
  const std::size_t n = size();
  levels_.assign(n + 1, std::vector<Choices>(n + 1));
  insides_ = levels_;
  top_.resize(n + 1);
  for (std::size_t begin = n; begin-- > 0;)
    for (std::size_t end = begin + 1; end <= n; ++end) {
      // In a replay from somewhere before to `end`, whose output's gradient waits.
      const std::int64_t waiting =
          statistics_before(end) + profile_.blocks[end - 1].output_gradient;
      const auto rest = [&](std::size_t from) {
        return from < end ? &levels_[from][end] : nullptr;
      };
      Choices& inside = insides_[begin][end];
      add_kept(inside, begin, waiting, false, rest(begin + 1));
      for (std::size_t middle = begin + 1; middle < end; ++middle) {
        const Forward forward = replayed_segment(begin, middle);
        add_segment(inside, begin, middle, {waiting + forward.bytes, forward.cost}, rest(middle));
      }
      keep_best(inside);
      Choices& level = levels_[begin][end];
      level = inside;
      add_segment(level, begin, end, {0, 0}, nullptr);  // runs only in its own replay
      keep_best(level);
    }
  top_[n].push_back({statistics_before(n) + profile_.loss, 0, n, n});
  for (std::size_t begin = n; begin-- > 0;) {
    add_kept(top_[begin], begin, statistics_before(begin) + profile_.blocks[begin].input_statistics,
             true, &top_[begin + 1]);
    for (std::size_t end = begin + 1; end <= n; ++end)
      add_segment(top_[begin], begin, end, {first_pass_of_segment(begin, end), 0}, &top_[end]);
    keep_best(top_[begin]);
  }
}

namespace {

std::int64_t cost_of(const Stretch& stretch) {
  return recomputation_cost(stretch.multiply_adds, stretch.made_bytes);
}

}  // namespace

// A segment that something follows in a replay, run for its output only.
CheckpointSearch::Forward CheckpointSearch::replayed_segment(std::size_t begin,
                                                             std::size_t end) const {
  const Stretch& first = profile_.blocks[begin].replayed_first;
  Forward forward{first.bytes, cost_of(first)};
  for (std::size_t i = begin + 1; i < end; ++i) {
    const BlockProfile& block = profile_.blocks[i];
    forward.bytes = std::max(forward.bytes, block.input + block.replayed_inside.bytes);
    forward.cost += cost_of(block.replayed_inside);
  }
  return forward;
}

std::int64_t CheckpointSearch::first_pass_of_segment(std::size_t begin, std::size_t end) const {
  std::int64_t highest = 0;
  for (std::size_t i = begin; i < end; ++i) {
    const BlockProfile& block = profile_.blocks[i];
    const std::int64_t before = statistics_before(i) + block.input_statistics;
    highest = std::max(highest, i == begin ? before + block.first_of_segment.bytes
                                           : before + block.input + block.inside_segment.bytes);
  }
  return highest;
}

void CheckpointSearch::add_kept(Choices& to, std::size_t i, std::int64_t before_forward,
                                bool first_pass, const Choices* rest) const {
  const BlockProfile& block = profile_.blocks[i];
  const std::int64_t next_input = i + 1 < size() ? profile_.blocks[i + 1].input : 0;
  for (std::size_t option = 0; option < block.options.size(); ++option) {
    const BlockOption& o = block.options[option];
    const Stretch& forward = first_pass ? o.first : rest ? o.replayed : o.replayed_last;
    const std::int64_t floor =
        std::max(before_forward + forward.bytes,
                 statistics_before(i + 1) + o.held + block.output_gradient + o.backward.bytes);
    const std::int64_t cost = cost_of(forward) + cost_of(o.backward);
    if (!rest) to.push_back({floor, cost, i, i + 1, option});
    if (rest)
      for (const Choice& next : *rest)
        to.push_back({std::max(floor, next.peak + o.held + next_input), cost + next.cost, i, i + 1,
                      option, nullptr, &next});
  }
}

// Best pairs of what is inside and what follows: for every peak that one of them sets, the
// cheapest other that does not pass it.
void CheckpointSearch::add_segment(Choices& to, std::size_t begin, std::size_t end, Forward forward,
                                   const Choices* rest) const {
  if (end == begin + 1 && profile_.blocks[begin].units.size() == 1) return;  // is an option
  const Choices& inside = insides_[begin][end];
  const auto add = [&](const Choice& inner, const Choice* next, std::int64_t shift) {
    std::int64_t peak = std::max(forward.bytes, inner.peak);
    if (next) peak = std::max(peak, next->peak + shift);
    to.push_back(
        {peak, forward.cost + inner.cost + (next ? next->cost : 0), begin, end, 0, &inner, next});
  };
  if (!rest) {
    for (const Choice& inner : inside) add(inner, nullptr, 0);
    return;
  }
  const std::int64_t shift = end < size() ? profile_.blocks[end].input : 0;
  // Both fall in peak and rise in cost: walk from the highest peak down.
  std::size_t a = 0, b = 0;
  while (a < inside.size() && b < rest->size()) {
    add(inside[a], &(*rest)[b], shift);
    (inside[a].peak >= (*rest)[b].peak + shift ? a : b) += 1;
  }
}

void CheckpointSearch::keep_best(Choices& choices) {
  std::sort(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) {
    return a.cost != b.cost ? a.cost < b.cost : a.peak < b.peak;
  });
  Choices best;
  for (const Choice& choice : choices)
    if (best.empty() || choice.peak < best.back().peak) best.push_back(choice);
  choices = std::move(best);
}

SegmentTree CheckpointSearch::tree_of(const ChainProfile& profile, const Choice* choice) {
  SegmentTree tree;
  for (; choice && choice->begin < profile.blocks.size(); choice = choice->rest) {
    const UnitRange& first = profile.blocks[choice->begin].units;
    if (choice->inner)
      tree.push_back({{first.begin, profile.blocks[choice->end - 1].units.end},
                      tree_of(profile, choice->inner)});
    else
      for (std::size_t unit = 0; unit < first.size(); ++unit)
        if (choice->option >> unit & 1)
          tree.push_back({{first.begin + unit, first.begin + unit + 1}, {}});
  }
  return tree;
}

std::vector<CheckpointSearch::Plan> CheckpointSearch::plans() const {
  std::vector<Plan> plans;
  for (const Choice& choice : top_[0])
    plans.push_back({profile_.base + profile_.blocks[0].input + choice.peak, choice.cost,
                     tree_of(profile_, &choice)});
  return plans;
}

RunSpec with_checkpoint_found(const RunSpec& spec, const Task& task,
                              const std::shared_ptr<Backend>& target) {
  const std::optional<std::int64_t> budget = checkpoint_budget(spec);
  if (!budget) return spec;
  const CheckpointSearch search(profile_chain(spec, task, target));
  RunSpec found = spec;
  found.memory_budget = 0;
  const auto peak_of = [&](const CheckpointSearch::Plan& plan) {
    found.checkpoint = to_text(plan.tree);
    return predict(found, task, target).training.peak_total;
  };
  const std::vector<CheckpointSearch::Plan> plans = search.plans();
  const auto fits = std::find_if(plans.begin(), plans.end(),
                                 [&](const auto& plan) { return plan.peak <= *budget; });
  const std::int64_t peak = peak_of(fits == plans.end() ? plans.back() : *fits);
  if (peak > *budget)
    throw InputError(concat("--checkpoint ", spec.checkpoint, ": no plan fits into ", *budget,
                            " bytes; the smallest peak that one reaches is ",
                            fits == plans.end() ? peak : peak_of(plans.back()),
                            " bytes: raise the budget, or take a smaller --microbatch"));
  found.memory_budget = spec.memory_budget;
  return found;
}

}  // namespace memfloor
