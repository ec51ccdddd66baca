"""What is learnt beside classes of nodes: links, recommendations, graphs of several types, whole graphs.

Each is one plain graph in the end, in which an example that is no node (a pair, a ranked list, a whole graph) has a
node of its own. So whatever forgets nodes and edges forgets users, interactions and graphs, and nothing else has to
know of them.
"""

from unweave.tasks.graphs import Graphs
from unweave.tasks.links import Links
from unweave.tasks.recommendation import Recommendation
from unweave.tasks.relations import Relations
from unweave.tasks.task import Task

__all__ = ["Graphs", "Links", "Recommendation", "Relations", "Task"]
