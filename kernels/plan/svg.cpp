#include "mscclpp/kernels/plan/svg.hpp"

#include <algorithm>
#include <sstream>

#include "mscclpp/kernels/plan/text.hpp"
#include "mscclpp/plan/fault_message.hpp"

namespace mscclpp::plan {

namespace {

constexpr double width = 1000, left = 120, top = 30, rowHeight = 16, rankGap = 8;

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '&':
        safe += "&amp;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

const char* colourOf(OperationKind kind) {
  switch (kind) {
    case OperationKind::Transfer:
      return "#4878a8";
    case OperationKind::Signal:
    case OperationKind::Release:
      return "#58a868";
    case OperationKind::Wait:
    case OperationKind::Acquire:
      return "#d8b8a0";
    case OperationKind::Flush:
      return "#b088c0";
    default:
      return "#b0b0b0";
  }
}

/// The lines of the text form of each block, to say what an operation does.
std::vector<std::string> linesOf(const NamedPlan& plan) {
  std::vector<std::string> lines(plan.operations.size());
  std::istringstream text(toText(plan));
  int next = 0;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("    ")) lines[next++] = line.substr(line.find_first_not_of(' '));
  }
  return lines;
}

}  // namespace

std::string toSvg(const NamedPlan& plan, const Simulated& simulated) {
  std::vector<double> rows;  // of each block of the plan
  std::ostringstream svg, labels;
  double y = top;
  for (int r = 0; r < plan.ranks; ++r) {
    for (int b = 0; b < plan.rankPlans[r].blocks.count; ++b) {
      labels << "<text x='4' y='" << y + 12 << "'>rank " << r << ", block " << b << "</text>\n";
      rows.push_back(y);
      y += rowHeight;
    }
    y += rankGap;
  }
  const double scale = simulated.seconds > 0 ? (width - left - 10) / simulated.seconds : 1;
  const auto x = [&](double seconds) { return left + seconds * scale; };
  const auto row = [&](const SimulatedOperation& operation) {
    return rows[plan.rankPlans[operation.rank].blocks.first + operation.block];
  };
  svg << "<svg xmlns='http://www.w3.org/2000/svg' width='" << width << "' height='" << y + 20
      << "' font-family='sans-serif' font-size='11'>\n"
      << "<defs><marker id='tip' markerWidth='6' markerHeight='6' refX='5' refY='3' orient='auto'>"
      << "<path d='M0,0 L6,3 L0,6 z' fill='#404040'/></marker></defs>\n"
      << "<rect width='100%' height='100%' fill='white'/>\n"
      << "<text x='4' y='16' font-weight='bold'>" << escaped(plan.name) << ": " << simulated.seconds * 1e6
      << " us (model)</text>\n"
      << labels.str();
  const std::vector<std::string> lines = linesOf(plan);
  for (const SimulatedOperation& operation : simulated.operations) {
    const int index = plan.blocks[plan.rankPlans[operation.rank].blocks.first + operation.block].operations.first +
                      operation.operation;
    svg << "<rect x='" << x(operation.begin) << "' y='" << row(operation) + 2 << "' width='"
        << std::max(1.0, x(operation.end) - x(operation.begin)) << "' height='12' fill='"
        << colourOf(plan.operations[index].kind) << "' stroke='white' stroke-width='0.5'><title>"
        << escaped(lines[index]) << "</title></rect>\n";
  }
  for (const SimulatedOperation& operation : simulated.operations) {
    if (operation.cause < 0) continue;
    const SimulatedOperation& from = simulated.operations[operation.cause];
    if (from.rank == operation.rank && from.block == operation.block) continue;
    svg << "<line x1='" << x(from.end) << "' y1='" << row(from) + 8 << "' x2='" << x(operation.end) << "' y2='"
        << row(operation) + 8 << "' stroke='#404040' stroke-width='0.7' marker-end='url(#tip)'/>\n";
  }
  svg << "</svg>\n";
  return svg.str();
}

}  // namespace mscclpp::plan
