"""The writes of one reconciliation.

`plan_draft.draft` reads the cluster and makes the plan, `plan_execution` applies it and stores
the new state, `applier` sends the requests.
"""
